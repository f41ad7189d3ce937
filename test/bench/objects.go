package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"strconv"
	"strings"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/client-go/kubernetes/scheme"
)

const (
	namespaces  = 20
	deployments = 50
)

// Names are of one length: what is encoded once serves all, with the name of
// each in place of that of number 0.
func namespace(i int) string      { return fmt.Sprintf("load-%02d", i%namespaces) }
func podName(i int) string        { return fmt.Sprintf("web-6d4b75cb6d-%05d", i) }
func configMapName(i int) string  { return fmt.Sprintf("settings-%05d", i) }
func deploymentName(i int) string { return fmt.Sprintf("web-%02d", i%deployments) }

func podsPath(i int) string       { return "/api/v1/namespaces/" + namespace(i) + "/pods" }
func podPath(i int) string        { return podsPath(i) + "/" + podName(i) }
func podStatusPath(i int) string  { return podPath(i) + "/status" }
func configMapsPath(i int) string { return "/api/v1/namespaces/" + namespace(i) + "/configmaps" }
func namespacesPath(int) string   { return "/api/v1/namespaces" }

func deploymentPath(i int) string {
	return "/apis/apps/v1/namespaces/" + namespace(i%deployments) + "/deployments/" + deploymentName(i) + "?fieldManager=bench"
}

// bodies makes the bodies of requests from that of number 0.
func bodies(zero []byte, name func(i int) string) func(i int) []byte {
	return func(i int) []byte {
		data := bytes.ReplaceAll(zero, []byte(name(0)), []byte(name(i)))
		return bytes.ReplaceAll(data, []byte(namespace(0)), []byte(namespace(i)))
	}
}

func toJSON(obj any) []byte {
	data, err := json.Marshal(obj)
	if err != nil {
		panic(err) // our own objects
	}
	return data
}

func toProto(pod *corev1.Pod) []byte {
	info, ok := runtime.SerializerInfoForMediaType(scheme.Codecs.SupportedMediaTypes(), mediaProto)
	if !ok {
		panic("the library has no protobuf codec")
	}
	data, err := runtime.Encode(scheme.Codecs.EncoderForVersion(info.Serializer, corev1.SchemeGroupVersion), pod)
	if err != nil {
		panic(err) // our own objects
	}
	return data
}

// realPod is a pod as a Deployment makes it, of about 5 KB in protobuf with its
// status. Nobody schedules it.
func realPod() *corev1.Pod {
	pod := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{
			Name: podName(0), GenerateName: "web-6d4b75cb6d-", Namespace: namespace(0),
			Labels:      map[string]string{"app": "web", "pod-template-hash": "6d4b75cb6d", "tier": "frontend"},
			Annotations: map[string]string{"example.com/checksum": strings.Repeat("0123456789abcdef", 4), "example.com/owner": "team-a"},
		},
		Spec: podSpec(),
	}
	pod.Spec.SchedulerName = "bench"
	return pod
}

func podSpec() corev1.PodSpec {
	quantity := resource.MustParse
	spec := corev1.PodSpec{
		ServiceAccountName: "default",
		Volumes: []corev1.Volume{{Name: "kube-api-access-x2x9z", VolumeSource: corev1.VolumeSource{Projected: &corev1.ProjectedVolumeSource{Sources: []corev1.VolumeProjection{
			{ServiceAccountToken: &corev1.ServiceAccountTokenProjection{Path: "token", ExpirationSeconds: new(int64(3607))}},
			{ConfigMap: &corev1.ConfigMapProjection{LocalObjectReference: corev1.LocalObjectReference{Name: "kube-root-ca.crt"}, Items: []corev1.KeyToPath{{Key: "ca.crt", Path: "ca.crt"}}}},
		}}}}},
		Tolerations: []corev1.Toleration{
			{Key: "node.kubernetes.io/not-ready", Operator: "Exists", Effect: "NoExecute", TolerationSeconds: new(int64(300))},
			{Key: "node.kubernetes.io/unreachable", Operator: "Exists", Effect: "NoExecute", TolerationSeconds: new(int64(300))},
		},
	}
	for c := range 2 {
		container := corev1.Container{
			Name: fmt.Sprintf("container-%d", c), Image: "registry.example.com/team/web:v1.2.3", Args: []string{"--listen=:8080", "--verbose"},
			Ports:        []corev1.ContainerPort{{Name: fmt.Sprintf("http%d", c), ContainerPort: 8080 + int32(c), Protocol: "TCP"}},
			VolumeMounts: []corev1.VolumeMount{{Name: "kube-api-access-x2x9z", ReadOnly: true, MountPath: "/var/run/secrets/kubernetes.io/serviceaccount"}},
			Resources: corev1.ResourceRequirements{
				Requests: corev1.ResourceList{"cpu": quantity("100m"), "memory": quantity("128Mi")},
				Limits:   corev1.ResourceList{"cpu": quantity("500m"), "memory": quantity("256Mi")},
			},
			ReadinessProbe: &corev1.Probe{PeriodSeconds: 10, ProbeHandler: corev1.ProbeHandler{HTTPGet: &corev1.HTTPGetAction{Path: "/healthz", Port: intstr.FromInt32(8080)}}},
		}
		for e := range 2 {
			container.Env = append(container.Env, corev1.EnvVar{Name: fmt.Sprintf("SETTING_%d", e), Value: strings.Repeat("v", 20)})
		}
		spec.Containers = append(spec.Containers, container)
	}
	return spec
}

// withStatus gives the pod the status of a running one; each round has another.
func withStatus(pod *corev1.Pod, round int) *corev1.Pod {
	now := metav1.NewTime(time.Unix(1_700_000_000+int64(round), 0))
	pod.Status = corev1.PodStatus{
		Phase: corev1.PodRunning, HostIP: "10.0.0.1", HostIPs: []corev1.HostIP{{IP: "10.0.0.1"}},
		PodIP: "10.1.0.1", PodIPs: []corev1.PodIP{{IP: "10.1.0.1"}}, StartTime: &now, QOSClass: corev1.PodQOSBurstable,
	}
	for _, kind := range []corev1.PodConditionType{"PodReadyToStartContainers", "Initialized", "Ready", "ContainersReady", "PodScheduled"} {
		pod.Status.Conditions = append(pod.Status.Conditions, corev1.PodCondition{Type: kind, Status: "True", LastTransitionTime: now})
	}
	for _, c := range pod.Spec.Containers {
		pod.Status.ContainerStatuses = append(pod.Status.ContainerStatuses, corev1.ContainerStatus{
			Name: c.Name, Image: c.Image, ImageID: c.Image + "@sha256:" + strings.Repeat("ab", 32), ContainerID: "containerd://" + strings.Repeat("cd", 32),
			Ready: true, Started: new(true), RestartCount: int32(round), State: corev1.ContainerState{Running: &corev1.ContainerStateRunning{StartedAt: now}},
		})
	}
	return pod
}

// realDeployment is one to apply. Each round changes something that no
// controller cares about.
func realDeployment(round int) []byte {
	labels := map[string]string{"app": "web"}
	d := &appsv1.Deployment{
		TypeMeta: metav1.TypeMeta{APIVersion: "apps/v1", Kind: "Deployment"},
		ObjectMeta: metav1.ObjectMeta{
			Name: deploymentName(0), Labels: labels, Annotations: map[string]string{"example.com/round": strconv.Itoa(round)},
		},
		Spec: appsv1.DeploymentSpec{
			Replicas: new(int32(0)), Selector: &metav1.LabelSelector{MatchLabels: labels},
			Template: corev1.PodTemplateSpec{ObjectMeta: metav1.ObjectMeta{Labels: labels}, Spec: podSpec()},
		},
	}
	var fields map[string]any
	if err := json.Unmarshal(toJSON(d), &fields); err != nil {
		panic(err) // our own objects
	}
	delete(fields, "status")
	return toJSON(fields)
}

func realConfigMap() *corev1.ConfigMap {
	return &corev1.ConfigMap{
		ObjectMeta: metav1.ObjectMeta{Name: configMapName(0)},
		Data:       map[string]string{"settings.yaml": strings.Repeat("key: value\n", 90)},
	}
}

// version is the resource version of now.
func (l *loader) version(ctx context.Context) (string, error) {
	list, err := l.a.clients.CoreV1().Pods(metav1.NamespaceDefault).List(ctx, metav1.ListOptions{})
	if err != nil {
		return "", fmt.Errorf("list pods: %w", err)
	}
	return list.ResourceVersion, nil
}

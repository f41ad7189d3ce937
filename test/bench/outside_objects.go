package main

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"strings"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

const (
	nodes                      = 100
	leasesDir                  = "/apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases"
	mediaMerge, mediaStrategic = "application/merge-patch+json", "application/strategic-merge-patch+json"
)

func nodeName(i int) string { return fmt.Sprintf("node-%03d", i%nodes) }

// boundPod is a pod of 7.6 KB of JSON, with its status and managedFields, that is
// on a node. What differing replaces in it is different in each.
func boundPod(round int) *corev1.Pod {
	pod := realPod()
	pod.TypeMeta = metav1.TypeMeta{APIVersion: "v1", Kind: "Pod"}
	pod.Spec.NodeName = nodeName(0)
	pod.Spec.Tolerations = []corev1.Toleration{{Operator: corev1.TolerationOpExists}}
	for i := range 3 {
		pod.Annotations[fmt.Sprintf("example.com/digest-%d", i)] = strings.Repeat("0123456789abcdef", 4)
	}
	return withStatus(pod, round)
}

// differing makes the bodies of objects that differ in more than their names: in
// digests, settings and addresses, a tenth of each.
func differing(obj any) func(i int) []byte {
	zero := bodies(toJSON(obj), podName)
	return func(i int) []byte {
		sum := sha256.Sum256(fmt.Append(nil, i))
		text := hex.EncodeToString(sum[:])
		body := zero(i)
		for old, now := range map[string]string{
			strings.Repeat("0123456789abcdef", 4): text, strings.Repeat("cd", 32): text[32:] + text[:32], strings.Repeat("v", 20): text[:20],
			nodeName(0): nodeName(i), "10.1.0.1": fmt.Sprintf("10.1.%d.%d", i>>8&255, i&255),
		} {
			body = bytes.ReplaceAll(body, []byte(old), []byte(now))
		}
		return body
	}
}

// aliveNode is a node that says it is ready; its lease says so again and again.
func aliveNode() *corev1.Node {
	now := metav1.Now()
	return &corev1.Node{
		ObjectMeta: metav1.ObjectMeta{Name: nodeName(0)},
		Status: corev1.NodeStatus{Conditions: []corev1.NodeCondition{
			{Type: corev1.NodeReady, Status: corev1.ConditionTrue, LastHeartbeatTime: now, LastTransitionTime: now},
		}},
	}
}

func lease(at time.Time) *coordinationv1.Lease {
	now := metav1.NewMicroTime(at)
	return &coordinationv1.Lease{
		TypeMeta:   metav1.TypeMeta{APIVersion: "coordination.k8s.io/v1", Kind: "Lease"},
		ObjectMeta: metav1.ObjectMeta{Name: nodeName(0)},
		Spec:       coordinationv1.LeaseSpec{HolderIdentity: new(nodeName(0)), LeaseDurationSeconds: new(int32(40)), RenewTime: &now},
	}
}

// conditions is a patch of a pod's status: with all conditions, or, where lists
// are merged by key, of one.
func conditions(round int, whole bool) []byte {
	status := withStatus(realPod(), round).Status
	if !whole {
		status.Conditions = status.Conditions[2:3]
	}
	return toJSON(map[string]any{"status": map[string]any{"conditions": status.Conditions}})
}

// applied is what a manager applies to a pod's status.
func applied(round int) []byte {
	return toJSON(map[string]any{
		"apiVersion": "v1", "kind": "Pod", "metadata": map[string]any{"name": podName(0), "namespace": namespace(0)},
		"status": map[string]any{"conditions": []corev1.PodCondition{
			{Type: "example.com/Applied", Status: "True", LastTransitionTime: metav1.NewTime(time.Unix(1_700_000_000+int64(round), 0))},
		}},
	})
}

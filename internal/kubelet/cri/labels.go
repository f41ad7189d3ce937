package cri

import (
	"encoding/json"
	"fmt"
	"path/filepath"
	"strconv"
	"time"

	v1 "k8s.io/api/core/v1"

	"github.com/kemudi/kemudi/internal/kubelet/podstep"
)

// Labels of sandboxes and containers.
const (
	LabelPodName       = "io.kubernetes.pod.name"
	LabelPodNamespace  = "io.kubernetes.pod.namespace"
	LabelPodUID        = "io.kubernetes.pod.uid"
	LabelContainerName = "io.kubernetes.container.name"
)

// Annotations of containers.
const (
	annotationHash              = "io.kubernetes.container.hash"
	annotationRestartCount      = "io.kubernetes.container.restartCount"
	annotationMessagePath       = "io.kubernetes.container.terminationMessagePath"
	annotationMessagePolicy     = "io.kubernetes.container.terminationMessagePolicy"
	annotationPreStop           = "io.kubernetes.container.preStopHandler"
	annotationPorts             = "io.kubernetes.container.ports"
	annotationDeletionGrace     = "io.kubernetes.pod.deletionGracePeriod"
	annotationTerminationGrace  = "io.kubernetes.pod.terminationGracePeriod"
	annotationBackoff           = "kemudi.io/restart-backoff" // what follows this container's exit
	annotationResources         = "kemudi.io/resources"       // as started, in JSON
	annotationSandboxSeen       = "kubernetes.io/config.seen"
	annotationSandboxConfigFrom = "kubernetes.io/config.source"
)

func podLabels(pod *v1.Pod) map[string]string {
	return map[string]string{
		LabelPodName:      pod.Name,
		LabelPodNamespace: pod.Namespace,
		LabelPodUID:       string(pod.UID),
	}
}

func containerLabels(pod *v1.Pod, name string) map[string]string {
	labels := podLabels(pod)
	labels[LabelContainerName] = name
	return labels
}

// containerAnnotations are what a later process needs to know about a running
// container that only the runtime remembers.
func containerAnnotations(pod *v1.Pod, c *v1.Container, a podstep.Action) (map[string]string, error) {
	out := map[string]string{
		annotationHash:          podstep.Hash(c),
		annotationRestartCount:  strconv.Itoa(a.Attempt),
		annotationMessagePath:   c.TerminationMessagePath,
		annotationMessagePolicy: string(c.TerminationMessagePolicy),
	}
	if a.Backoff > 0 {
		out[annotationBackoff] = a.Backoff.String()
	}
	if pod.DeletionGracePeriodSeconds != nil {
		out[annotationDeletionGrace] = strconv.FormatInt(*pod.DeletionGracePeriodSeconds, 10)
	}
	if pod.Spec.TerminationGracePeriodSeconds != nil {
		out[annotationTerminationGrace] = strconv.FormatInt(*pod.Spec.TerminationGracePeriodSeconds, 10)
	}
	set := func(key string, value any) error {
		data, err := json.Marshal(value)
		if err != nil {
			return fmt.Errorf("encode annotation %s: %w", key, err)
		}
		out[key] = string(data)
		return nil
	}
	if c.Lifecycle != nil && c.Lifecycle.PreStop != nil {
		if err := set(annotationPreStop, c.Lifecycle.PreStop); err != nil {
			return nil, err
		}
	}
	if len(c.Ports) > 0 {
		if err := set(annotationPorts, c.Ports); err != nil {
			return nil, err
		}
	}
	if len(c.Resources.Limits) > 0 || len(c.Resources.Requests) > 0 {
		if err := set(annotationResources, c.Resources); err != nil {
			return nil, err
		}
	}
	return out, nil
}

// PodLogDir is the directory of a pod's log files below dir.
func PodLogDir(dir, namespace, name, uid string) string {
	return filepath.Join(dir, namespace+"_"+name+"_"+uid)
}

// LogPath is the path of a container's log below the pod's log directory.
func LogPath(container string, attempt int) string {
	return filepath.Join(container, strconv.Itoa(attempt)+".log")
}

func parseDuration(s string) time.Duration {
	d, err := time.ParseDuration(s)
	if err != nil {
		return 0
	}
	return d
}

package podstep

import (
	"strings"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
)

func TestEndedContainersShowTheirResourcesTheirUserAndAFairShareOfMessages(t *testing.T) {
	pod := &v1.Pod{Spec: v1.PodSpec{RestartPolicy: v1.RestartPolicyNever}}
	user, signal := v1.ContainerUser{Linux: &v1.LinuxContainerUser{UID: 1000, GID: 3000, SupplementalGroups: []int64{3000, 4000}}}, v1.SIGTERM
	var o Observed
	for _, name := range []string{"a", "b", "c", "d"} {
		pod.Spec.Containers = append(pod.Spec.Containers, v1.Container{Name: name, Image: "x", Resources: v1.ResourceRequirements{
			Requests: v1.ResourceList{v1.ResourceCPU: resource.MustParse("100m")},
		}})
		o.Containers = append(o.Containers, Container{Name: name, ID: name, State: Exited, Message: strings.Repeat(name, 4096), User: &user, StopSignal: &signal})
	}
	st := Next(Desired{Pod: pod}, o, time.Unix(1000, 0)).Status
	for _, cs := range st.ContainerStatuses {
		if got := cs.State.Terminated.Message; got != strings.Repeat(cs.Name, 3<<10) {
			t.Errorf("message of %s: got %d bytes, want 3072 of 12 KiB for four", cs.Name, len(got))
		}
		if cs.Resources == nil || cs.Resources.Requests.Cpu().MilliValue() != 100 || cs.AllocatedResources.Cpu().MilliValue() != 100 {
			t.Errorf("resources of %s: got %+v, %v", cs.Name, cs.Resources, cs.AllocatedResources)
		}
		if cs.User == nil || cs.User.Linux.GID != 3000 || cs.StopSignal == nil || *cs.StopSignal != v1.SIGTERM {
			t.Errorf("user and signal of %s: got %+v, %v", cs.Name, cs.User, cs.StopSignal)
		}
	}
}

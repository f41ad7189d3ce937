package devices

import (
	"fmt"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apiresource "k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/utils/ptr"
)

func TestServesExtendedResourcesOfContainers(t *testing.T) {
	const gpu = "example.com/gpu"
	asks := func(n int64) corev1.ResourceList {
		return corev1.ResourceList{"cpu": apiresource.MustParse("1"), gpu: *apiresource.NewQuantity(n, apiresource.DecimalSI)}
	}
	for _, tc := range []struct {
		name string
		init []int64 // what each asks for; negative: it runs as long as the pod does
		main []int64
		want string
	}{
		{"each container has its own", nil, []int64{1, 0, 2}, "container-0-request-1:1 container-2-request-1:2 | m0=container-0-request-1 m2=container-2-request-1"},
		{"who ends before has those of who comes after", []int64{2}, []int64{1, 1}, "container-1-request-1:1 container-2-request-1:1 | m0=container-1-request-1 m1=container-2-request-1 i0=container-1-request-1 i0=container-2-request-1"},
		{"who needs more has some beside", []int64{3}, []int64{1}, "container-0-request-1:2 container-1-request-1:1 | m0=container-1-request-1 i0=container-1-request-1 i0=container-0-request-1"},
		{"those who end before share the most", []int64{1, 3}, nil, "container-1-request-1:3 | i0=container-1-request-1 i1=container-1-request-1"},
		{"who stays keeps its own from who came before it only", []int64{-1, 1}, nil, "container-0-request-1:1 container-1-request-1:1 | i0=container-0-request-1 i1=container-1-request-1"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			p := &corev1.Pod{}
			for i, n := range tc.init {
				c := corev1.Container{Name: fmt.Sprintf("i%d", i), Resources: corev1.ResourceRequirements{Requests: asks(max(n, -n))}}
				if n < 0 {
					c.RestartPolicy = ptr.To(corev1.ContainerRestartPolicyAlways)
				}
				p.Spec.InitContainers = append(p.Spec.InitContainers, c)
			}
			for i, n := range tc.main {
				p.Spec.Containers = append(p.Spec.Containers, corev1.Container{Name: fmt.Sprintf("m%d", i), Resources: corev1.ResourceRequirements{Requests: asks(n)}})
			}
			requests, mappings := Serve(p, map[corev1.ResourceName]string{gpu: "class"})
			var words []string
			for _, r := range requests {
				words = append(words, fmt.Sprintf("%s:%d", r.Name, r.Exactly.Count))
			}
			words = append(words, "|")
			for _, m := range mappings {
				words = append(words, m.ContainerName+"="+m.RequestName)
			}
			if got := strings.Join(words, " "); got != tc.want {
				t.Errorf("got  %s\nwant %s", got, tc.want)
			}
		})
	}
}

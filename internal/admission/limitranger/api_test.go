package limitranger_test

import (
	"testing"
	"testing/synctest"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kemudi/kemudi/internal/api/core"
	"github.com/kemudi/kemudi/internal/client"
	"github.com/kemudi/kemudi/internal/plane"
	"github.com/kemudi/kemudi/internal/sim"
)

func TestAPIAppliesTheLimitRangesOfANamespace(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		plane := sim.Plane(t, plane.Options{})
		cpu := func(q string) corev1.ResourceList { return corev1.ResourceList{"cpu": resource.MustParse(q)} }
		_, err := client.For(plane.Admin(), core.LimitRanges).Create(t.Context(), &corev1.LimitRange{
			ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "l"},
			Spec:       corev1.LimitRangeSpec{Limits: []corev1.LimitRangeItem{{Type: corev1.LimitTypeContainer, Max: cpu("1"), DefaultRequest: cpu("250m")}}},
		})
		if err != nil {
			t.Fatal(err)
		}
		create := func(name string, limits corev1.ResourceList) (*corev1.Pod, error) {
			return client.For(plane.Admin(), core.Pods).Create(t.Context(), &corev1.Pod{
				ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name},
				Spec:       corev1.PodSpec{Containers: []corev1.Container{{Name: "c", Image: "i", Resources: corev1.ResourceRequirements{Limits: limits}}}},
			})
		}
		pod, err := create("open", nil)
		if err != nil {
			t.Fatal(err)
		}
		r := pod.Spec.Containers[0].Resources
		if r.Requests.Cpu().String() != "250m" || r.Limits.Cpu().String() != "1" || pod.Status.QOSClass != corev1.PodQOSBurstable {
			t.Errorf("got %v and class %s, want a request of 250m, a limit of 1, and Burstable", r, pod.Status.QOSClass)
		}
		if got, want := pod.Annotations["kubernetes.io/limit-ranger"], "LimitRanger plugin set: cpu request for container c; cpu limit for container c"; got != want {
			t.Errorf("got note %q, want %q", got, want)
		}
		const want = `pods "big" is forbidden: maximum cpu usage per Container is 1, but limit is 2`
		if _, err := create("big", cpu("2")); !apierrors.IsForbidden(err) || err.Error() != want {
			t.Errorf("got %v, want %s", err, want)
		}
	})
}

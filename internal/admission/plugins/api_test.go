package plugins_test

import (
	"strings"
	"testing"
	"testing/synctest"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kemudi/kemudi/internal/api/core"
	"github.com/kemudi/kemudi/internal/client"
	"github.com/kemudi/kemudi/internal/plane"
	"github.com/kemudi/kemudi/internal/sim"
)

func TestNamespacesAreMadeWithWhatIsInThem(t *testing.T) {
	for _, asked := range []bool{true, false} {
		synctest.Test(t, func(t *testing.T) {
			var o plane.Options
			if asked {
				o.Plugins.Enable = []string{"NamespaceAutoProvision"}
			}
			p := sim.Plane(t, o)
			_, err := client.For(p.Admin(), core.ConfigMaps).Create(t.Context(), &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "new", Name: "a"}})
			_, getErr := client.For(p.Admin(), core.Namespaces).Get(t.Context(), "", "new")
			if asked && (err != nil || getErr != nil) || !asked && (!apierrors.IsNotFound(err) || !apierrors.IsNotFound(getErr)) {
				t.Errorf("on: %t: creation says %v, the namespace is: %v", asked, err, getErr)
			}
		})
	}
}

func TestPodSecurityIsOnByDefault(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := sim.Plane(t, plane.Options{})
		ns := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "team", Labels: map[string]string{"pod-security.kubernetes.io/enforce": "baseline"}}}
		if _, err := client.For(p.Admin(), core.Namespaces).Create(t.Context(), ns); err != nil {
			t.Fatal(err)
		}
		pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "team", GenerateName: "web-"}}
		pod.Spec = corev1.PodSpec{HostPID: true, Containers: []corev1.Container{{Name: "a", Image: "i"}}}
		_, err := client.For(p.Admin(), core.Pods).Create(t.Context(), pod)
		const want = `is forbidden: violates PodSecurity "baseline:latest": host namespaces (hostPID=true)`
		if !apierrors.IsForbidden(err) || !strings.HasPrefix(err.Error(), `pods "web-`) || !strings.HasSuffix(err.Error(), want) {
			t.Errorf("got %v, want %s", err, want)
		}
	})
}

package podpreset_test

import (
	"testing"
	"testing/synctest"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kemudi/kemudi/internal/api/core"
	"github.com/kemudi/kemudi/internal/api/settings"
	"github.com/kemudi/kemudi/internal/apiserver"
	"github.com/kemudi/kemudi/internal/client"
	"github.com/kemudi/kemudi/internal/plane"
	"github.com/kemudi/kemudi/internal/sim"
	"github.com/kemudi/kemudi/internal/trace"
	"github.com/kemudi/kemudi/internal/watchcache"
)

// made is the environment and the annotations that a pod gets which a preset selects.
func made(t *testing.T, api, plugin bool) (env []corev1.EnvVar, events int) {
	synctest.Test(t, func(t *testing.T) {
		o := plane.Options{Serving: func(o *apiserver.Options, _ *watchcache.Set) error {
			o.RuntimeConfig = map[string]bool{"settings.k8s.io/v1alpha1": api}
			return nil
		}}
		if plugin {
			o.Plugins.Enable = []string{"PodPreset"}
		}
		p := sim.Plane(t, o)
		preset := &settings.PodPreset{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "p"}}
		preset.Spec.Env = []corev1.EnvVar{{Name: "A", Value: "1"}}
		if _, err := client.For(p.Admin(), settings.PodPresets).Create(t.Context(), preset); err != nil {
			t.Fatal(err)
		}
		create := func(name string, env ...corev1.EnvVar) *corev1.Pod {
			pod, err := client.For(p.Admin(), core.Pods).Create(t.Context(), &corev1.Pod{
				ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name},
				Spec:       corev1.PodSpec{Containers: []corev1.Container{{Name: "c", Image: "i", Env: env}}},
			})
			if err != nil {
				t.Fatal(err)
			}
			return pod
		}
		env = create("web").Spec.Containers[0].Env
		other := create("other", corev1.EnvVar{Name: "A", Value: "2"})
		synctest.Wait()
		list, err := client.For(p.Admin(), core.Events).List(t.Context(), "default", metav1.ListOptions{})
		if err != nil {
			t.Fatal(err)
		}
		for _, e := range list {
			if e.Reason == "PodPresetConflict" && e.InvolvedObject.UID == other.UID {
				events++
			}
		}
	})
	return env, events
}

func TestPresetsWorkOnlyWithTheirAPIAndPlugin(t *testing.T) {
	trace.Proves(t, "PPS-014", "PPS-016", "PPS-019")
	for _, q := range []struct{ api, plugin, want bool }{{true, true, true}, {true, false, false}, {false, true, false}, {false, false, false}} {
		env, events := made(t, q.api, q.plugin)
		if got := len(env) == 1; got != q.want || (events == 1) != q.want {
			t.Errorf("API on %t, plugin on %t: got environment %v and %d events of the other pod, want some of each: %t", q.api, q.plugin, env, events, q.want)
		}
	}
}

package controllers_test

import (
	"net/netip"
	"reflect"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kemudi/kemudi/internal/api/apps"
	"github.com/kemudi/kemudi/internal/api/core"
	"github.com/kemudi/kemudi/internal/auth/authn"
	"github.com/kemudi/kemudi/internal/auth/pki"
	"github.com/kemudi/kemudi/internal/client"
	"github.com/kemudi/kemudi/internal/cloud/loopback"
	"github.com/kemudi/kemudi/internal/controller"
	"github.com/kemudi/kemudi/internal/controllers"
	"github.com/kemudi/kemudi/internal/plane"
	"github.com/kemudi/kemudi/internal/resource"
	"github.com/kemudi/kemudi/internal/sim"
	"github.com/kemudi/kemudi/internal/trace"
)

func everyController(o controllers.Options) []*controller.Controller {
	o.PodGroups, o.Cloud.Provider = true, &loopback.Cloud{}
	o.PodCIDRs, o.Authority, o.Tokens = []netip.Prefix{netip.MustParsePrefix("10.244.0.0/16")}, &pki.Authority{}, &authn.Issuer{}
	return controllers.All(o)
}

func TestControllersAreTurnedOnAndOffByUpstreamsNames(t *testing.T) {
	all := everyController(controllers.Options{})
	names := func(o controllers.Options) (on []string) {
		for _, c := range o.Running(all) {
			on = append(on, c.Name)
		}
		slices.Sort(on)
		return on
	}
	everyOne := names(controllers.Options{})
	but := func(off ...string) []string {
		return slices.DeleteFunc(slices.Clone(everyOne), func(n string) bool { return slices.Contains(off, n) })
	}
	for _, c := range []struct {
		flag string
		want []string
	}{
		{"*", everyOne},
		{"*,-deployment-controller", but("deployment-controller")},
		{"-deployment,*", but("deployment-controller")},
		{"*,-job-controller", but("job-controller", "job-orphan-controller")},
		{"*,-garbage-collector-controller,-endpoint", but("generic-garbage-collector", "endpoint-controller")},
		{"daemonset", []string{"daemon-set-controller"}},
		{"namespace,-namespace,tokencleaner", []string{"namespace-controller", "token-cleaner"}},
		{"-namespace", nil},
	} {
		o := controllers.Options{Enabled: strings.Split(c.flag, ",")}
		if err := o.Check(); err != nil {
			t.Errorf("--controllers %s: %v", c.flag, err)
		}
		if got := names(o); !slices.Equal(got, c.want) {
			t.Errorf("--controllers %s: got %q, want %q", c.flag, got, c.want)
		}
	}
	for _, bad := range []string{"deploymint", "-deploymint", "", "*-"} {
		o := controllers.Options{Enabled: []string{"*", bad}}
		want := "--controllers: '" + strings.TrimPrefix(bad, "-") + "' is not in the list of known controllers: acme-controller, bootstrap-signer-controller, "
		if err := o.Check(); err == nil || !strings.HasPrefix(err.Error(), want) {
			t.Errorf("--controllers *,%s: got %v, want %s...", bad, err, want)
		}
	}
	list := controllers.Names()
	trace.Proves(t, "CTL-022")
	for _, want := range []string{"deployment-controller", "garbage-collector-controller", "job-controller", "node-ipam-controller", "serviceaccount-token-controller"} {
		if !slices.Contains(list, want) {
			t.Errorf("the names %q have no %s", list, want)
		}
	}
}

// TestControllersTrackObjectsThatSayWhatIsWanted lists those that follow no kind with a spec: what is wanted there is
// said by the object's being there, its data or its metadata.
func TestControllersTrackObjectsThatSayWhatIsWanted(t *testing.T) {
	var without []string
	for _, c := range everyController(controllers.Options{Kinds: controller.Fixed([]*resource.Def{core.Pods.Def})}) {
		spec := slices.ContainsFunc(c.Reads, func(d *resource.Def) bool {
			_, ok := reflect.TypeOf(d.New()).Elem().FieldByName("Spec")
			return ok
		})
		if !spec {
			without = append(without, c.Name)
		}
		if len(c.Reads) == 0 && c.Name != "generic-garbage-collector" { // that follows them all, as they come and go
			t.Errorf("%s follows no kind", c.Name)
		}
	}
	slices.Sort(without)
	trace.Proves(t, "CTL-002")
	if want := []string{
		"bootstrap-signer", "clusterrole-aggregation-controller", "generic-garbage-collector", "serviceaccount-token-controller", "token-cleaner",
	}; !slices.Equal(without, want) {
		t.Errorf("without a spec to go by: got %q, want %q", without, want)
	}
}

func TestControllersHaveAsManyWorkersAsTheirFlagSays(t *testing.T) {
	for _, s := range controllers.DefaultSyncs() {
		before := workersOf(controllers.Options{})
		o := controllers.Options{Syncs: controllers.DefaultSyncs()}
		i := slices.IndexFunc(o.Syncs, func(x controllers.Sync) bool { return x.Flag == s.Flag })
		o.Syncs[i].Keys = 77
		changed := 0
		for name, n := range workersOf(o) {
			if n == 77 {
				changed++
			} else if n != before[name] {
				t.Errorf("--%s 77: %s has %d workers, want %d", s.Flag, name, n, before[name])
			}
		}
		if changed != 1 {
			t.Errorf("--%s 77: is of %d controllers, want 1", s.Flag, changed)
		}
		o.Syncs[i].Keys = 0
		if err := o.Check(); err == nil || err.Error() != "--"+s.Flag+" 0 must be greater than 0" {
			t.Errorf("--%s 0: got %v", s.Flag, err)
		}
	}
	if got := workersOf(controllers.Options{})["generic-garbage-collector"]; got != 20 {
		t.Errorf("the garbage collector has %d workers, want 20", got)
	}
}

func workersOf(o controllers.Options) map[string]int {
	n := map[string]int{}
	for _, c := range everyController(o) {
		n[c.Name] = c.Workers
	}
	return n
}

func TestControllerThatIsOffStopsNoOther(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := sim.Plane(t, plane.Options{Controllers: controllers.Options{Enabled: []string{"*", "-deployment"}}})
		labels := map[string]string{"app": "web"}
		template := corev1.PodTemplateSpec{
			ObjectMeta: metav1.ObjectMeta{Labels: labels}, Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "c", Image: "i"}}},
		}
		meta, sel := metav1.ObjectMeta{Namespace: "default", Name: "web"}, &metav1.LabelSelector{MatchLabels: labels}
		if _, err := client.For(p.Admin(), apps.Deployments).Create(t.Context(), &appsv1.Deployment{ObjectMeta: meta, Spec: appsv1.DeploymentSpec{Selector: sel, Template: template}}); err != nil {
			t.Fatal(err)
		}
		if _, err := client.For(p.Admin(), apps.ReplicaSets).Create(t.Context(), &appsv1.ReplicaSet{ObjectMeta: meta, Spec: appsv1.ReplicaSetSpec{Selector: sel, Template: template}}); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Minute)
		if n := client.Cached(p.Admin(), apps.ReplicaSets, "").Len(); n != 1 {
			t.Errorf("there are %d sets of pods, want only the one that was made by hand", n)
		}
		trace.Proves(t, "COMP-012", "WHAT-009", "WHAT-017")
		if n := client.Cached(p.Admin(), core.Pods, "").Len(); n != 1 {
			t.Errorf("there are %d pods, want the one of the set", n)
		}
	})
}

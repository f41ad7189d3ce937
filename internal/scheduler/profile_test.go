package scheduler

import (
	"errors"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/kemudi/kemudi/internal/client"
	"github.com/kemudi/kemudi/internal/scheduler/config"
)

func configured(t *testing.T, text string) *config.Config {
	t.Helper()
	c, err := config.Parse([]byte("apiVersion: kubescheduler.config.k8s.io/v1\nkind: KubeSchedulerConfiguration\n" + text))
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// scheduledBy makes a pod that names its scheduler.
func (r *rig) scheduledBy(name, line string) {
	r.t.Helper()
	p := parsePod(split(line))
	p.UID, p.Spec.SchedulerName, p.Spec.Containers[0].Image = "", name, "i"
	if _, err := r.pods.Create(r.t.Context(), p); err != nil {
		r.t.Fatal(err)
	}
	synctest.Wait()
}

const twoProfiles = `
podInitialBackoffSeconds: 3
podMaxBackoffSeconds: 5
profiles:
- schedulerName: default-scheduler
- schedulerName: packer
  plugins:
    filter:
      disabled: [{name: TaintToleration}]
    postFilter:
      disabled: [{name: "*"}]
    score:
      disabled: [{name: NodeResourcesBalancedAllocation}]
  pluginConfig:
  - name: NodeResourcesFit
    args: {scoringStrategy: {type: MostAllocated}}
`

func TestEachPodIsScheduledByTheProfileThatItNames(t *testing.T) {
	inClusterOf(t, configured(t, twoProfiles), nil, func(r *rig) {
		r.node("n1 cpu=4")
		r.node("n2 cpu=4")
		r.pod("first cpu=1 on=n1")
		r.pod("p cpu=1")
		r.where("p", "n2")
		r.scheduledBy("packer", "q cpu=2")
		r.take()
		r.scheduledBy("packer", "r cpu=1")
		if q, s := r.get("q").Spec.NodeName, r.get("r").Spec.NodeName; q == "" || q != s {
			t.Errorf("q is on %q and r on %q, want both on one node", q, s)
		}
		r.said("r", bound, "packer: Normal Scheduled r: Successfully assigned default/r to "+r.get("r").Spec.NodeName)
		r.scheduledBy("nobody", "s cpu=1")
		r.where("s", "")
		r.said("s", corev1.PodCondition{})
	})
}

func TestAPluginThatIsOffForOneProfileIsOnForAnother(t *testing.T) {
	inClusterOf(t, configured(t, twoProfiles), nil, func(r *rig) {
		r.node("n1 cpu=4 taint=k=v:NoSchedule")
		r.pod("p cpu=1")
		r.where("p", "")
		r.scheduledBy("packer", "q cpu=1")
		r.where("q", "n1")
		// Nor does it make room: its postFilter is off.
		r.take()
		r.scheduledBy("packer", "big cpu=4 prio=10")
		r.where("big", "")
		why := "0/1 nodes are available: 1 Insufficient cpu."
		r.said("big", refused(why), "packer: Warning FailedScheduling big: "+why)
		if r.get("q").DeletionTimestamp != nil {
			t.Error("q was preempted")
		}
	})
}

// Both wait for the same node, refused by other plugins.
func TestPodsOfAllProfilesAreTriedAgain(t *testing.T) {
	inClusterOf(t, configured(t, twoProfiles), nil, func(r *rig) {
		r.node("n1 cpu=1 taint=k=v:NoSchedule")
		r.pod("p cpu=2")
		r.scheduledBy("packer", "q cpu=2")
		r.where("p", "")
		r.where("q", "")
		time.Sleep(time.Minute)
		r.node("n2 cpu=4")
		r.where("p", "n2")
		r.where("q", "n2")
	})
}

func TestWaitsAsLongAsTheConfigurationSays(t *testing.T) {
	inClusterOf(t, configured(t, twoProfiles), nil, func(r *rig) {
		r.node("n1 cpu=1")
		var at []time.Duration
		began := time.Now()
		r.onBinding(func(*client.Request) error {
			if at = append(at, time.Since(began).Round(time.Second)); len(at) < 4 {
				return apierrors.NewForbidden(corev1.Resource("pods"), "p", errors.New("boom"))
			}
			return nil
		})
		r.pod("p cpu=1")
		time.Sleep(time.Minute)
		synctest.Wait()
		if want := []time.Duration{0, 3 * time.Second, 8 * time.Second, 13 * time.Second}; !slices.Equal(at, want) {
			t.Errorf("tried at %v, want %v", at, want)
		}
	})
}

package scheduler

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/kemudi/kemudi/internal/client"
	"github.com/kemudi/kemudi/internal/scheduler/plugins"
	"github.com/kemudi/kemudi/internal/scheduler/snapshot"
)

// probe is a plugin that notes what it is asked, and answers as the pod's
// labels say: reserve=no, permit=no, permit=N and ready=N (wait until there are N
// nodes, a minute at most), work=SECONDS, work=fails.
type probe struct {
	name string
	log  *notes
	no   *plugins.Reason
}

// notes is what happened, in order.
type notes struct {
	mu struct {
		sync.Mutex
		lines []string
	}
}

func (n *notes) add(words ...string) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.mu.lines = append(n.mu.lines, strings.Join(words, " "))
}

// are checks what happened since the last check.
func (n *notes) are(t *testing.T, want ...string) {
	t.Helper()
	n.mu.Lock()
	defer n.mu.Unlock()
	if !slices.Equal(n.mu.lines, want) {
		t.Errorf("got %q, want %q", n.mu.lines, want)
	}
	n.mu.lines = nil
}

// probes returns two plugins and what they note.
func probes() ([]plugins.Plugin, *notes) {
	log, index := &notes{}, len(plugins.New().All)
	reason := func(i int) *plugins.Reason {
		return &plugins.Reason{Texts: []string{"probe says no"}, Plugin: index + i}
	}
	return []plugins.Plugin{&probe{"a", log, reason(0)}, &probe{"b", log, reason(1)}}, log
}

func (p *probe) Name() string           { return p.name }
func (p *probe) Wakers() plugins.Events { return plugins.NodeAdded }

// says is what the pod's label says to this plugin: KEY-NAME=VALUE.
func (p *probe) says(pod *snapshot.Pod, key string) string { return pod.Obj.Labels[key+"-"+p.name] }

func (p *probe) Reserve(c *plugins.Cycle, n *snapshot.Node) *plugins.Reason {
	p.log.add(p.name, "reserve", c.Pod.Obj.Name, n.Name)
	if p.says(c.Pod, "reserve") == "no" {
		return p.no
	}
	return nil
}

func (p *probe) Unreserve(pod *snapshot.Pod, n *snapshot.Node) {
	p.log.add(p.name, "unreserve", pod.Obj.Name, n.Name)
}

func (p *probe) until(c *plugins.Cycle, nodes string) plugins.Wait {
	if nodes == "" {
		return plugins.Wait{}
	}
	s := c.Snapshot
	return plugins.Wait{For: time.Minute, Over: func() (bool, error) {
		if s.Node("bad") != nil {
			return false, errors.New("a bad node came")
		}
		return fmt.Sprint(s.Len()) == nodes, nil
	}}
}

func (p *probe) Permit(c *plugins.Cycle, _ *snapshot.Node) (plugins.Wait, *plugins.Reason) {
	p.log.add(p.name, "permit", c.Pod.Obj.Name)
	if says := p.says(c.Pod, "permit"); says != "no" {
		return p.until(c, says), nil
	}
	return plugins.Wait{}, p.no
}

func (p *probe) PreBind(c *plugins.Cycle, _ *snapshot.Node) plugins.Work {
	p.log.add(p.name, "prebind", c.Pod.Obj.Name)
	work := plugins.Work{Wait: p.until(c, p.says(c.Pod, "ready"))}
	if says := p.says(c.Pod, "work"); says != "" {
		name := c.Pod.Obj.Name
		work.Do = func(context.Context, client.Transport) error {
			p.log.add(p.name, "works", name)
			if says == "fails" {
				return apierrors.NewConflict(corev1.Resource("things"), "x", errors.New("boom"))
			}
			time.Sleep(time.Duration(atoi(says)) * time.Second)
			return nil
		}
	}
	return work
}

func (p *probe) PostBind(pod *snapshot.Pod, n *snapshot.Node) {
	p.log.add(p.name, "postbind", pod.Obj.Name, n.Name)
}

func TestAsksPluginsFromReserveToPostBindInOrder(t *testing.T) {
	both, log := probes()
	inClusterWith(t, both, func(r *rig) {
		r.node("n1 cpu=2")
		r.onBinding(func(*client.Request) error { log.add("binding"); return nil })
		r.pod("p work-a=1")
		r.where("p", "")
		time.Sleep(time.Second)
		synctest.Wait()
		r.where("p", "n1")
		log.are(t, "a reserve p n1", "b reserve p n1", "a permit p", "b permit p", "a prebind p", "a works p", "b prebind p", "binding", "a postbind p n1", "b postbind p n1")
	})
}

func TestAPodThatIsNotReservedOrPermittedGivesItsPlaceBack(t *testing.T) {
	for _, point := range []string{"reserve", "permit"} {
		t.Run(point, func(t *testing.T) {
			both, log := probes()
			inClusterWith(t, both, func(r *rig) {
				r.node("n1 cpu=1")
				r.pod("p cpu=1 " + point + "-b=no")
				want := []string{"a reserve p n1", "b reserve p n1", "b unreserve p n1", "a unreserve p n1"}
				if point == "permit" {
					want = slices.Insert(want, 2, "a permit p", "b permit p")
				}
				log.are(t, want...)
				why := "0/1 nodes are available: 1 probe says no."
				r.said("p", refused(why), "Warning FailedScheduling p: "+why)
				r.pod("q cpu=1")
				r.where("q", "n1")
				log.are(t, "a reserve q n1", "b reserve q n1", "a permit q", "b permit q", "a prebind q", "b prebind q", "a postbind q n1", "b postbind q n1")
				r.node("n2 cpu=1") // what the plugin wakes for
				log.mu.Lock()
				defer log.mu.Unlock()
				if len(log.mu.lines) == 0 || log.mu.lines[0] != "a reserve p n2" {
					t.Errorf("got %q, want p to be tried again", log.mu.lines)
				}
			})
		})
	}
}

func TestAPodKeepsItsPlaceWhileItWaits(t *testing.T) {
	for _, point := range []string{"permit", "ready"} {
		t.Run(point, func(t *testing.T) {
			both, _ := probes()
			inClusterWith(t, both, func(r *rig) {
				r.node("n1 cpu=1")
				r.pod("p cpu=1 " + point + "-a=2 " + point + "-b=3")
				r.pod("q cpu=1")
				r.where("p", "")
				r.where("q", "")
				r.node("n2 cpu=0.1")
				r.where("p", "") // b waits for one more
				r.node("n3 cpu=0.1")
				r.where("q", "")
				r.where("p", "n1")
			})
		})
	}
}

func TestAWaitEndsWithItsTime(t *testing.T) {
	for point, want := range map[string]corev1.PodCondition{
		"permit": refused("0/1 nodes are available: 1 rejected due to timeout after waiting 1m0s at plugin b."),
		"ready": {Status: corev1.ConditionFalse, Reason: corev1.PodReasonSchedulerError,
			Message: `running PreBind plugin "b": rejected due to timeout after waiting 1m0s at plugin b`},
	} {
		t.Run(point, func(t *testing.T) {
			both, log := probes()
			inClusterWith(t, both, func(r *rig) {
				r.node("n1 cpu=1")
				r.pod("p cpu=1 " + point + "-b=9")
				r.pod("q cpu=1")
				time.Sleep(59 * time.Second)
				synctest.Wait()
				r.where("q", "")
				r.take()
				time.Sleep(time.Second)
				synctest.Wait()
				r.where("q", "n1")
				r.said("p", want, "Warning FailedScheduling p: "+want.Message, "Normal Scheduled q: Successfully assigned default/q to n1")
				log.mu.Lock()
				defer log.mu.Unlock()
				if !slices.Contains(log.mu.lines, "b unreserve p n1") {
					t.Errorf("got %q, want p unreserved", log.mu.lines)
				}
			})
		})
	}
}

func TestAWaitThatFailsGivesThePlaceBack(t *testing.T) {
	both, _ := probes()
	inClusterWith(t, both, func(r *rig) {
		r.node("n1 cpu=1")
		r.pod("p cpu=1 permit-a=9")
		r.pod("q cpu=1")
		r.node("bad cpu=0.1")
		r.where("q", "n1")
		why := "0/1 nodes are available: 1 a bad node came."
		if c := r.get("p").Status.Conditions; len(c) == 0 || c[0].Message != why {
			t.Errorf("got %v, want %s", c, why)
		}
	})
}

func TestWorkThatFailsGivesThePlaceBackAndIsTriedAgain(t *testing.T) {
	both, log := probes()
	inClusterWith(t, both, func(r *rig) {
		r.node("n1 cpu=1")
		r.pod("p cpu=1 work-b=fails")
		why := `running PreBind plugin "b": Operation cannot be fulfilled on things "x": boom`
		r.said("p", corev1.PodCondition{Status: corev1.ConditionFalse, Reason: corev1.PodReasonSchedulerError, Message: why}, "Warning FailedScheduling p: "+why)
		log.are(t, "a reserve p n1", "b reserve p n1", "a permit p", "b permit p", "a prebind p", "b prebind p", "b works p", "b unreserve p n1", "a unreserve p n1")
		r.pod("q cpu=1")
		r.where("q", "n1")
	})
}

func TestAPodThatGoesWhileItWaitsIsUnreservedOnce(t *testing.T) {
	for _, how := range []string{"permit-a=9", "ready-a=9", "work-a=10"} {
		t.Run(how, func(t *testing.T) {
			both, log := probes()
			inClusterWith(t, both, func(r *rig) {
				r.node("n1 cpu=1")
				r.pod("p cpu=1 " + how)
				r.delete("p")
				r.pod("q cpu=1")
				r.where("q", "n1")
				time.Sleep(10 * time.Minute)
				synctest.Wait()
				log.mu.Lock()
				defer log.mu.Unlock()
				unreserved := 0
				for _, line := range log.mu.lines {
					if strings.HasSuffix(line, "unreserve p n1") {
						unreserved++
					}
				}
				if unreserved != 2 || slices.Contains(log.mu.lines, "b prebind p") {
					t.Errorf("got %q, want each plugin to unreserve once", log.mu.lines)
				}
			})
		})
	}
}

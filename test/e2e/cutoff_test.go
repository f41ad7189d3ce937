package e2e

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/kemudi/kemudi/test/wait"
)

// TestPodsOfALostNodeAreNotDoubled cuts an agent off for so long that its node counts as lost and
// its pods are told to end: they go on there, also after a restart of the agent, and nobody starts
// others of their names until they have ended. What tolerates the loss is not touched.
func TestPodsOfALostNodeAreNotDoubled(t *testing.T) {
	if rounds(t) == 1 {
		t.Skip("it takes minutes until a node counts as lost: make chaos")
	}
	t.Parallel()
	s := newServers(t, 1, 2)
	k := s.kubectl()
	k.apply(t, webOnEachNode)
	s.runOnlyOnes(t)
	k.do(t, "rollout", "status", "daemonset/web", patient)
	const lost = "agent-1"
	before := s.containers(t, "default", "app=web")
	was := map[string]string{} // of the node that is lost
	for _, pod := range s.pods(t, "default", "app=one") {
		if pod.Spec.NodeName == lost {
			was[pod.Name] = string(pod.UID)
		}
	}
	if len(was) == 0 {
		t.Fatalf("no pod of the set is on %s", lost)
	}
	p := s.inside(lost)
	goOn := func() error {
		if n, err := p.running("only-one"); err != nil || n != len(was) {
			return fmt.Errorf("%d of %d pods run on the machine that is cut off, %w", n, len(was), err)
		}
		return nil
	}
	mend := s.cut(t, lost, wholeCut...)
	wait.Until(t, func() error {
		told := 0
		for _, pod := range s.pods(t, "default", "app=one") {
			switch uid := was[pod.Name]; {
			case uid == "":
			case uid != string(pod.UID):
				return fmt.Errorf("pod %s has got another one", pod.Name)
			case pod.DeletionTimestamp != nil:
				told++
			}
		}
		if told < len(was) {
			return fmt.Errorf("%d of %d pods are told to end", told, len(was))
		}
		return nil
	})
	if err := goOn(); err != nil {
		t.Error(err)
	}
	s.kill(t, lost)
	s.boot(t, lost)
	wait.Until(t, func() error {
		if !strings.Contains(tail(s.logOf(lost), 40), "what was known earlier counts") {
			return errors.New("the agent does not run")
		}
		return goOn()
	})
	for _, pod := range s.pods(t, "default", "app=one") {
		if uid := was[pod.Name]; uid != "" && uid != string(pod.UID) {
			t.Errorf("pod %s has got another one while it runs on %s", pod.Name, lost)
		}
	}
	mend()
	s.wantReady(t)
	wait.Until(t, func() error {
		for _, pod := range s.pods(t, "default", "app=one") {
			if was[pod.Name] == string(pod.UID) {
				return fmt.Errorf("pod %s, which was told to end, is still there", pod.Name)
			}
		}
		return nil
	})
	k.do(t, "rollout", "status", "statefulset/one", patient)
	k.do(t, "rollout", "status", "daemonset/web", patient)
	s.wantOnlyOnes(t)
	wantSame(t, before, s.containers(t, "default", "app=web"))
}

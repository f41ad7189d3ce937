package e2e

import (
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/kemudi/kemudi/internal/trace"
	"github.com/kemudi/kemudi/test/wait"
)

// chance is a source of moments; KEMUDI_SEED repeats those of an earlier run.
func chance(t *testing.T) *rand.Rand {
	t.Helper()
	seed := rand.Uint64()
	if given := os.Getenv("KEMUDI_SEED"); given != "" {
		seed = must(strconv.ParseUint(given, 10, 64))(t)
	}
	t.Logf("KEMUDI_SEED=%d", seed)
	return rand.New(rand.NewPCG(seed, seed))
}

// launch starts the server without waiting for anything.
func (c *cluster) launch(t *testing.T) {
	t.Helper()
	log, err := os.OpenFile(c.logFile(), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
	if err != nil {
		t.Fatal(err)
	}
	defer log.Close()
	cmd := c.command(context.Background(), c.serverCommand()...)
	cmd.Stdout, cmd.Stderr = log, log
	if err := c.machine.start(cmd); err != nil {
		t.Fatalf("start server: %v", err)
	}
	ended := make(chan struct{})
	c.proc, c.ended = cmd, ended
	go func() { _ = cmd.Wait(); close(ended) }()
}

// killAfter kills the running server at a moment from now.
func (c *cluster) killAfter(t *testing.T, moment time.Duration) {
	t.Helper()
	select {
	case <-time.After(moment):
	case <-c.ended:
		t.Errorf("the server ended by itself; its log:\n%s", tail(c.logFile(), 30))
	}
	c.kill(syscall.SIGKILL)
}

// TestSurvivesKillsAtAnyMoment kills the server at random moments of rollouts,
// and again in the starts that follow: nothing confirmed is lost, what was asked
// for comes about, bystanders never notice, and nothing is left over.
func TestSurvivesKillsAtAnyMoment(t *testing.T) {
	t.Parallel()
	trace.Proves(t, "SVC-049")
	c := newCluster(t)
	random := chance(t)
	k := c.kubectl()
	k.do(t, "create", "deployment", "bystander", "--image=kemudi.local/web:1", "--replicas=2")
	k.apply(t, strings.Replace(string(must(os.ReadFile("../../examples/web.yaml"))(t)), "replicas: 3", "replicas: 4", 1))
	k.rolledOut(t, "bystander")
	k.rolledOut(t, "web")
	before := c.containers(t, "default", "app=bystander")
	for round := range 5 {
		objects := c.writeObjects(t, fmt.Sprintf("round-%d", round))
		version := 2 - round%2
		k.do(t, "set", "image", "deployment/web", fmt.Sprintf("web=kemudi.local/web:%d", version))
		rollout, start := time.Duration(random.Int64N(int64(2*time.Second))), time.Duration(random.Int64N(int64(time.Second)))
		c.killAfter(t, rollout)
		c.launch(t)
		c.killAfter(t, start)
		t.Logf("round %d: killed %s into a rollout, %s into a start; ready again after %s", round, rollout, start, c.serve(t))
		objects.wantAll(t, c)
		k.rolledOut(t, "web")
		wait.Until(t, func() error {
			pods := c.pods(t, "default", "app=web")
			for _, pod := range pods {
				if image := pod.Spec.Containers[0].Image; !strings.HasSuffix(image, fmt.Sprint(":", version)) {
					return fmt.Errorf("pod %s has image %s", pod.Name, image)
				}
			}
			if len(pods) != 4 {
				return fmt.Errorf("%d pods, want 4", len(pods))
			}
			return nil
		})
		wantSame(t, before, c.containers(t, "default", "app=bystander"))
		c.wantNoOrphans(t)
		c.wantNoOrphanAddresses(t)
	}
	url := "http://" + machineIP + ":30080/"
	wait.Until(t, func() error { _, err := get(c.neighbour, url); return err })
}

// wantNoOrphanAddresses waits until exactly the addresses of pods are taken.
func (c *cluster) wantNoOrphanAddresses(t *testing.T) {
	t.Helper()
	wait.Until(t, func() error {
		want := map[string]string{}
		for _, pod := range c.pods(t, "", "") {
			if !pod.Spec.HostNetwork {
				want[pod.Status.PodIP] = pod.Name
			}
		}
		taken, err := filepath.Glob(filepath.Join(c.DataDir, "podnet/ipam/*/[0-9]*.*.*.*"))
		if err != nil {
			return err
		}
		others := []string{}
		for _, file := range taken {
			if ip := filepath.Base(file); want[ip] == "" {
				others = append(others, ip)
			} else {
				delete(want, ip)
			}
		}
		if len(want)+len(others) > 0 {
			return fmt.Errorf("addresses of pods that are not taken: %v; taken by nobody: %v", want, others)
		}
		return nil
	})
}

// TestSurvivesKillsDuringImports kills the server while it takes in an image:
// the image is there whole or not at all, and can be imported again.
func TestSurvivesKillsDuringImports(t *testing.T) {
	t.Parallel()
	c := &cluster{machine: newMachine(t)}
	t.Cleanup(func() { c.kill(syscall.SIGTERM) })
	random := chance(t)
	c.serve(t)
	c.connect(t)
	dirs := []string{"--data-dir", c.DataDir, "--run-dir", c.RunDir}
	var large string
	for _, file := range c.images {
		if filepath.Base(file) == "agnhost-1.tar" {
			large = file
		}
	}
	command := append([]string{c.bin, "image", "import"}, append(dirs, large)...)
	for round := range 3 {
		s := c.machine.begin(t, false, command...)
		moment := time.Duration(random.Int64N(int64(500 * time.Millisecond)))
		c.killAfter(t, moment)
		code := s.exits(t)
		c.serve(t)
		o := c.run(t.Context(), nil, append([]string{c.bin, "image", "ls"}, dirs...)...)
		there := strings.Contains(o.stdout, "agnhost")
		t.Logf("round %d: killed %s into an import: exit code %d, image there: %v", round, moment, code, there)
		if o.code != 0 || code == 0 && !there {
			t.Errorf("import ended with code %d; images after that: %+v", code, o)
		}
		if there { // then it is whole
			c.create(t, "default", fmt.Sprintf("metadata: {name: round-%d}\nspec: {terminationGracePeriodSeconds: 0, containers: [{name: c, image: kemudi.local/agnhost:1}]}\n", round))
			c.await(t, "default", fmt.Sprintf("round-%d", round), isReady)
		}
		if round == 1 && there {
			break // nothing is left to interrupt
		}
	}
	c.importImages(t, large)
	c.create(t, "default", "metadata: {name: after}\nspec: {terminationGracePeriodSeconds: 0, containers: [{name: c, image: kemudi.local/agnhost:1}]}\n")
	c.await(t, "default", "after", isReady)
	c.wantNoOrphans(t)
}

package e2e

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/moby/sys/mountinfo"
	"golang.org/x/sys/unix"

	"github.com/kemudi/kemudi/internal/fleet"
	"github.com/kemudi/kemudi/internal/up"
	"github.com/kemudi/kemudi/test/wait"
)

// inside is a machine of the cluster that is in the machine.
func (s *servers) inside(name string) *place {
	return &place{Netns: s.netns(name), Dir: filepath.Join(s.DataDir, "machines", name), RunDir: s.RunDir + "-" + name}
}

// cutPower ends all that runs on a machine, and what its kernel and its memory had: network,
// mounts, cgroups, the run directory. Its disk stays.
func (s *servers) cutPower(t *testing.T, name string) {
	t.Helper()
	p := s.inside(name)
	wait.Until(t, func() error {
		list, err := p.processes()
		for pid := range list {
			_ = syscall.Kill(pid, syscall.SIGKILL)
		}
		if len(list) > 0 {
			err = errors.Join(err, fmt.Errorf("%d processes are left", len(list)))
		}
		return err
	})
	mounts := must(mountinfo.GetMounts(nil))(t)
	for _, m := range slices.Backward(mounts) {
		if p.ours(m.Mountpoint) {
			_ = unix.Unmount(m.Mountpoint, unix.MNT_DETACH)
		}
	}
	for _, group := range must(filepath.Glob("/sys/fs/cgroup/*" + p.cgroup()))(t) {
		wait.Until(t, func() error { return removeGroups(group) })
	}
	err := errors.Join(unix.Unmount(p.Netns, unix.MNT_DETACH), os.Remove(p.Netns), os.RemoveAll(p.RunDir))
	if err != nil {
		t.Fatalf("cut the power of %s: %v", name, err)
	}
}

// removeGroups removes a cgroup and those in it.
func removeGroups(group string) error {
	var dirs []string
	err := filepath.WalkDir(group, func(path string, d fs.DirEntry, err error) error {
		if err == nil && d.IsDir() {
			dirs = append(dirs, path)
		}
		return err
	})
	for _, dir := range slices.Backward(dirs) {
		err = errors.Join(err, unix.Rmdir(dir))
	}
	return err
}

// boot starts a machine again, without what the first server does for it: network and process
// alone.
func (s *servers) boot(t *testing.T, name string) {
	t.Helper()
	p := s.inside(name)
	s.host.Must(func() error {
		_, err := fleet.Fleet{Program: s.bin, DataDir: s.DataDir, RunDir: s.RunDir}.Grow(t.Context(), fleet.Size{Servers: 1})
		return err
	})
	log := must(os.OpenFile(up.LogFile(p.Dir), os.O_APPEND|os.O_WRONLY, 0))(t)
	defer log.Close()
	cmd := s.command(context.Background(), "nsenter", "--net="+p.Netns, s.bin, "agent",
		"--data-dir", p.Dir, "--run-dir", p.RunDir, "--node-name", name, "--pod-logs-dir", filepath.Join(p.Dir, "pod-logs"))
	cmd.Stdout, cmd.Stderr = log, log
	if err := s.start(cmd); err != nil {
		t.Fatal(err)
	}
	go func() { _ = cmd.Wait() }()
}

// running counts the containers on a machine by a word of their command lines.
func (p *place) running(word string) (n int, _ error) {
	list, err := p.processes()
	for _, line := range list {
		if args := strings.Split(line, "\x00"); strings.HasSuffix(args[0], "/agnhost") && slices.Contains(args, word) {
			n++
		}
	}
	return n, err
}

// TestPodsComeBackAfterALossOfPower cuts the power of an agent's machine, first while there is no
// server: its pods run again by what its disk has, the same pods, each container started once more. Those
// of other machines are not touched.
func TestPodsComeBackAfterALossOfPower(t *testing.T) {
	t.Parallel()
	s := newServers(t, 1, 1)
	k := s.kubectl()
	k.apply(t, webOnEachNode)
	s.runOnlyOnes(t)
	k.do(t, "rollout", "status", "daemonset/web", patient)
	const lost = "agent-1"
	uids, there, elsewhere := map[string]string{}, map[string]string{}, map[string]string{}
	for _, pod := range s.pods(t, "default", "app in (web,one)") {
		uids[pod.Name] = string(pod.UID)
		if pod.Spec.NodeName == lost {
			there[pod.Name] = pod.Labels["app"]
		}
	}
	for name, is := range s.containers(t, "default", "app in (web,one)") {
		if pod, _, _ := strings.Cut(name, "/"); there[pod] == "" {
			elsewhere[name] = is
		}
	}
	ones := 0
	for _, app := range there {
		if app == "one" {
			ones++
		}
	}
	if ones == 0 || len(there) != ones+1 {
		t.Fatalf("got %v on %s, want a pod of each kind", there, lost)
	}
	again := func(restarts int32) {
		t.Helper()
		s.wantReady(t)
		wait.Until(t, func() error {
			for _, pod := range s.pods(t, "default", "app in (web,one)") {
				if uids[pod.Name] != string(pod.UID) {
					return fmt.Errorf("pod %s has UID %s, want %s", pod.Name, pod.UID, uids[pod.Name])
				}
				if is := pod.Status.ContainerStatuses[0]; there[pod.Name] != "" && is.RestartCount != restarts {
					return fmt.Errorf("pod %s has %d restarts, want %d", pod.Name, is.RestartCount, restarts)
				}
				if err := isReady(&pod); err != nil {
					return err
				}
			}
			return nil
		})
		wantSame(t, elsewhere, s.containers(t, "default", "app in (web,one)"))
		s.wantOnlyOnes(t)
	}
	p := s.inside(lost)
	s.kill(t, first)
	s.cutPower(t, lost)
	s.boot(t, lost)
	wait.Until(t, func() error {
		web, err := p.running("netexec")
		if got, e := p.running("only-one"); err != nil || e != nil || web != 1 || got != ones {
			return fmt.Errorf("without a server: got %d and %d containers, %v, %v, want 1 and %d", web, got, err, e, ones)
		}
		return nil
	})
	s.up(t)
	again(1)
	s.cutPower(t, lost)
	s.up(t)
	again(2)
}

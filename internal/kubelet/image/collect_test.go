package image

import (
	"context"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	v1 "k8s.io/api/core/v1"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/kemudi/kemudi/test/metric"
)

// full is a node whose disk has 1000 bytes, of which each image takes some.
type full struct {
	*node
	c     *Collector
	other int64 // bytes of what is no image
}

func newFull(config Config, images ...string) *full {
	f := &full{node: newNode()}
	f.cri.AddImage(images...)
	f.c = NewCollector(CollectorOptions{
		Config: config, Images: f.cri, Runtime: f.cri, Puller: f.Puller, Log: slog.New(slog.DiscardHandler),
		Event: func(kind, reason, message string) { f.events = append(f.events, kind+" "+reason+": "+message) },
		Usage: func(path string) (capacity, available int64, err error) {
			if path != "/images" {
				return 0, 0, fmt.Errorf("asked for %s", path)
			}
			return 1000, 1000 - f.other - 50*int64(len(f.cri.Images())), nil
		},
	})
	return f
}

func (f *full) collect(t *testing.T, fails bool) {
	t.Helper()
	if err := f.c.Collect(t.Context()); (err != nil) != fails {
		t.Errorf("collect: got %v", err)
	}
}

func (f *full) has(t *testing.T, want ...string) {
	t.Helper()
	if got := f.cri.Images(); !slices.Equal(got, want) {
		t.Errorf("images: got %v, want %v", got, want)
	}
}

// container makes a container of an image.
func (f *full) container(t *testing.T, image string) {
	t.Helper()
	config := &runtimeapi.PodSandboxConfig{Metadata: &runtimeapi.PodSandboxMetadata{Name: image}}
	sb, err := f.cri.RunPodSandbox(t.Context(), &runtimeapi.RunPodSandboxRequest{Config: config})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := f.cri.CreateContainer(t.Context(), &runtimeapi.CreateContainerRequest{PodSandboxId: sb.PodSandboxId, SandboxConfig: config, Config: &runtimeapi.ContainerConfig{
		Metadata: &runtimeapi.ContainerMetadata{Name: "c"}, Image: &runtimeapi.ImageSpec{Image: "sha256:" + image},
	}}); err != nil {
		t.Fatal(err)
	}
}

func TestUnusedImagesGoWhenTheDiskIsFull(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFull(Config{}, "a:1", "b:1", "d:1", "pause:1", "used:1")
		reg := prometheus.NewRegistry()
		f.Puller.Measured(reg)
		f.container(t, "used:1")
		f.other = 590
		f.collect(t, false)
		f.has(t, "a:1", "b:1", "d:1", "pause:1", "used:1") // 84 % are not too much
		f.ensure(t, "b:1", v1.PullIfNotPresent)            // a pod that has no container yet
		f.ensure(t, "new:1", v1.PullIfNotPresent)
		f.Forget("u1")
		f.ensure(t, "b:1", v1.PullIfNotPresent)
		f.events = nil
		f.collect(t, false) // 89 % are; removing two images is enough
		f.has(t, "b:1", "new:1", "pause:1", "used:1")
		f.reported(t)
		if got := metric.Value(t, reg, "kubelet_image_garbage_collected_total", "reason=space"); got != 2 {
			t.Errorf("counted: got %v, want 2 that were removed", got)
		}

		f.other = 700
		f.Forget("u1")
		f.ensure(t, "d:1", v1.PullIfNotPresent)
		f.events = nil
		f.collect(t, true) // new:1 is too young, d:1 in use, and b:1 not enough
		f.has(t, "d:1", "new:1", "pause:1", "used:1")
		f.reported(t, "Warning FreeDiskSpaceFailed: Insufficient free disk space on the node's image filesystem (95% of 0.0 GiB used). Failed to free sufficient space by deleting unused images (freed 50 bytes). "+
			"Investigate disk usage, as it could be used by active images, logs, volumes, or other data.")
		time.Sleep(2 * time.Minute)
		f.collect(t, true)
		f.has(t, "d:1", "pause:1", "used:1")
		if err := f.c.RemoveUnused(t.Context()); err != nil {
			t.Error(err)
		}
		f.has(t, "d:1", "pause:1", "used:1")
	})
}

func TestImagesGoWhenTheyAreTooOld(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFull(Config{MaxAge: time.Hour}, "a:1", "b:1")
		f.collect(t, false)
		time.Sleep(30 * time.Minute)
		f.ensure(t, "b:1", v1.PullIfNotPresent)
		f.collect(t, false)
		f.Forget("u1")
		time.Sleep(30 * time.Minute)
		f.collect(t, false)
		f.has(t, "b:1")
		time.Sleep(30 * time.Minute)
		f.collect(t, false)
		f.has(t)
	})
}

// TestPullsAreFollowedByACollection fills the disk by a pull.
func TestPullsAreFollowedByACollection(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFull(Config{}, "a:1", "b:1")
		ctx, cancel := context.WithCancel(t.Context())
		var running sync.WaitGroup
		defer running.Wait()
		defer cancel()
		running.Go(func() { _ = f.c.Run(ctx) })
		synctest.Wait()
		f.other = 700
		f.ensure(t, "c:1", v1.PullIfNotPresent)
		synctest.Wait()
		f.has(t, "b:1", "c:1")
	})
}

func TestThresholdsAreChecked(t *testing.T) {
	for _, c := range []Config{{HighPercent: 101}, {HighPercent: -1}, {LowPercent: -1}, {HighPercent: 70, LowPercent: 70}, {MaxAge: time.Second}, {MinAge: -1}, {MaxPulls: -1}, {ProviderConfig: "/x"}} {
		if err := c.Check(); err == nil || !strings.HasPrefix(err.Error(), "--") {
			t.Errorf("%+v: got %v, want an error that names the flag", c, err)
		}
	}
	for _, c := range []Config{{}, {HighPercent: 50}, {HighPercent: 100}, {LowPercent: 10}} {
		if err := c.Check(); err != nil {
			t.Errorf("%+v: got %v", c, err)
		}
	}
}

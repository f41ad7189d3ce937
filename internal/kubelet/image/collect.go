package image

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"time"

	"golang.org/x/sys/unix"
	v1 "k8s.io/api/core/v1"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/kemudi/kemudi/internal/obs/tracing"
)

// collectInterval is how often the disk is looked at when no image was pulled.
const collectInterval = 5 * time.Minute

// Collector removes images that nobody uses when their file system fills up. An
// image is in use when a container has it, running or not, or when the puller
// gave it to a pod that is still there.
type Collector struct {
	o     CollectorOptions
	turn  chan struct{} // buffered: who holds its token collects
	known map[string]*seen
	begun bool // the images have been looked at before
}

// CollectorOptions are what a collector works with; all but Usage are required.
type CollectorOptions struct {
	Config  Config
	Images  runtimeapi.ImageServiceClient
	Runtime runtimeapi.RuntimeServiceClient
	Puller  *Puller
	Log     *slog.Logger
	Tracing *tracing.Provider // makes spans of collections; nil: there are none
	// Event tells people about the node.
	Event func(kind, reason, message string)
	// Usage returns the size of the file system at path and what is free of it,
	// in bytes. Default: as the kernel says.
	Usage func(path string) (capacity, available int64, err error)
}

// seen is when an image was found on the node, and found in use; zero: never, or
// before this process.
type seen struct{ first, used time.Time }

// NewCollector returns a collector that does nothing yet.
func NewCollector(o CollectorOptions) *Collector {
	if o.Usage == nil {
		o.Usage = usage
	}
	o.Config = o.Config.WithDefaults()
	return &Collector{o: o, turn: make(chan struct{}, 1), known: map[string]*seen{}}
}

func usage(path string) (capacity, available int64, err error) {
	var fs unix.Statfs_t
	if err := unix.Statfs(path, &fs); err != nil {
		return 0, 0, fmt.Errorf("look at image filesystem %s: %w", path, err)
	}
	return int64(fs.Blocks) * fs.Bsize, int64(fs.Bavail) * fs.Bsize, nil
}

// Run collects after each pull and now and then, until ctx ends. A failure is
// told when it repeats: the first may be of a runtime that has just started.
func (c *Collector) Run(ctx context.Context) error {
	failed := false
	for {
		err := c.Collect(ctx)
		switch {
		case ctx.Err() != nil:
			return context.Cause(ctx)
		case err != nil && failed:
			c.o.Event(v1.EventTypeWarning, "ImageGCFailed", err.Error())
			fallthrough
		case err != nil:
			c.o.Log.Warn("collect images", "err", err)
		}
		failed = err != nil
		timer := time.NewTimer(collectInterval)
		select {
		case <-timer.C:
		case <-c.o.Puller.arrived:
		case <-ctx.Done():
		}
		timer.Stop()
	}
}

// Collect removes unused images that are too old, and, when the disk is fuller
// than the high threshold, others until it is at the low one.
func (c *Collector) Collect(ctx context.Context) error {
	return c.alone(ctx, func() (err error) {
		ctx, span := c.o.Tracing.Start(ctx, "Images/GarbageCollect")
		defer span.End()
		unused, err := c.look(ctx)
		if err != nil {
			return err
		}
		if unused, err = c.removeOld(ctx, unused); err != nil {
			return err
		}
		return c.makeRoom(ctx, unused)
	})
}

// RemoveUnused removes every image that is not in use, whatever its age.
func (c *Collector) RemoveUnused(ctx context.Context) error {
	return c.alone(ctx, func() error {
		unused, err := c.look(ctx)
		if err != nil {
			return err
		}
		var errs []error
		for _, im := range unused {
			errs = append(errs, c.remove(ctx, im, forSpace))
		}
		return errors.Join(errs...)
	})
}

// alone calls f while no other collection is under way.
func (c *Collector) alone(ctx context.Context, f func() error) error {
	select {
	case c.turn <- struct{}{}:
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	defer func() { <-c.turn }()
	return f()
}

// look notes which images there are, and returns those that may be removed, what
// has not been used for longest first.
func (c *Collector) look(ctx context.Context) ([]*runtimeapi.Image, error) {
	now := time.Now()
	listed, err := c.o.Images.ListImages(ctx, &runtimeapi.ListImagesRequest{})
	if err != nil {
		return nil, fmt.Errorf("list images: %w", err)
	}
	containers, err := c.o.Runtime.ListContainers(ctx, &runtimeapi.ListContainersRequest{})
	if err != nil {
		return nil, fmt.Errorf("list containers: %w", err)
	}
	used := map[string]bool{}
	for _, x := range containers.Containers {
		used[x.ImageRef], used[x.ImageId], used[x.GetImage().GetImage()] = true, true, true
	}
	known := map[string]*seen{}
	var unused []*runtimeapi.Image
	for _, im := range listed.Images {
		s := c.known[im.Id]
		if s == nil {
			s = &seen{}
			if c.begun {
				s.first = now
			}
		}
		known[im.Id] = s
		switch names := slices.Concat([]string{im.Id}, im.RepoTags, im.RepoDigests); {
		case slices.ContainsFunc(names, func(name string) bool { return used[name] }) || c.o.Puller.uses(im.Id):
			s.used = now
		case !im.Pinned:
			unused = append(unused, im)
		}
	}
	c.known, c.begun = known, true
	if err := c.o.Puller.records.prune(func(id string) bool { return known[id] != nil }, now); err != nil {
		c.o.Log.Warn("forget who has pulled images that are gone", "err", err)
	}
	slices.SortFunc(unused, func(a, b *runtimeapi.Image) int {
		x, y := known[a.Id], known[b.Id]
		return cmp.Or(x.used.Compare(y.used), x.first.Compare(y.first), cmp.Compare(a.Id, b.Id))
	})
	return unused, nil
}

// removeOld removes the images that nobody used for the maximum age, and returns
// the others.
func (c *Collector) removeOld(ctx context.Context, unused []*runtimeapi.Image) (rest []*runtimeapi.Image, err error) {
	if c.o.Config.MaxAge == 0 {
		return unused, nil
	}
	for _, im := range unused {
		s := c.known[im.Id]
		if s.first.IsZero() { // it was here before us, and its age counts from now
			s.first = time.Now()
		}
		last := s.used
		if s.first.After(last) {
			last = s.first
		}
		if time.Since(last) < c.o.Config.MaxAge {
			rest = append(rest, im)
			continue
		}
		if err := c.remove(ctx, im, forAge); err != nil {
			return nil, err
		}
	}
	return rest, nil
}

// makeRoom removes images until the disk is at the low threshold, if it is at the
// high one.
func (c *Collector) makeRoom(ctx context.Context, unused []*runtimeapi.Image) error {
	capacity, available, err := c.space(ctx)
	if err != nil {
		return err
	}
	percent := 100 - int(available*100/capacity)
	if c.o.Config.HighPercent >= 100 || percent < c.o.Config.HighPercent {
		return nil
	}
	before, wanted := available, capacity*int64(100-c.o.Config.LowPercent)/100
	c.o.Log.Info("disk of images is too full: remove those that are not used", "percent", percent, "high", c.o.Config.HighPercent, "low", c.o.Config.LowPercent)
	for _, im := range unused {
		if available >= wanted {
			break
		}
		if s := c.known[im.Id]; time.Since(s.first) < c.o.Config.MinAge {
			continue
		}
		if err := c.remove(ctx, im, forSpace); err != nil {
			return err
		}
		if _, available, err = c.space(ctx); err != nil {
			return err
		}
	}
	if available >= wanted {
		return nil
	}
	message := fmt.Sprintf("Insufficient free disk space on the node's image filesystem (%d%% of %.1f GiB used). "+
		"Failed to free sufficient space by deleting unused images (freed %d bytes). "+
		"Investigate disk usage, as it could be used by active images, logs, volumes, or other data.",
		percent, float64(capacity)/(1<<30), max(available-before, 0))
	c.o.Event(v1.EventTypeWarning, "FreeDiskSpaceFailed", message)
	return errors.New(message)
}

// space asks the runtime where its images are, and how full it is there.
func (c *Collector) space(ctx context.Context) (capacity, available int64, err error) {
	info, err := c.o.Images.ImageFsInfo(ctx, &runtimeapi.ImageFsInfoRequest{})
	if err != nil {
		return 0, 0, fmt.Errorf("ask for the image filesystem: %w", err)
	}
	if len(info.ImageFilesystems) == 0 {
		return 0, 0, errors.New("the container runtime tells of no image filesystem")
	}
	capacity, available, err = c.o.Usage(info.ImageFilesystems[0].GetFsId().GetMountpoint())
	if err == nil && capacity == 0 {
		err = errors.New("invalid capacity 0 on image filesystem")
		c.o.Event(v1.EventTypeWarning, "InvalidDiskCapacity", err.Error())
	}
	return capacity, min(available, capacity), err
}

// remove removes an image, unless a pod has begun to use it meanwhile.
func (c *Collector) remove(ctx context.Context, im *runtimeapi.Image, why string) error {
	if c.o.Puller.uses(im.Id) {
		return nil
	}
	if _, err := c.o.Images.RemoveImage(ctx, &runtimeapi.RemoveImageRequest{Image: &runtimeapi.ImageSpec{Image: im.Id}}); err != nil {
		return fmt.Errorf("remove image %s: %w", im.Id, err)
	}
	delete(c.known, im.Id)
	c.o.Puller.changes.Add(1)
	c.o.Puller.metrics.removed(why)
	c.o.Log.Info("removed an image that nobody uses", "image", im.Id, "names", im.RepoTags, "bytes", im.Size)
	return nil
}

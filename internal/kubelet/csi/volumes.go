package csi

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	v1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/kemudi/kemudi/internal/api/core/csi"
	"github.com/kemudi/kemudi/internal/api/storage"
)

// Options of Volumes. All are required.
type Options struct {
	Root string // the node agent's root directory
	Seen string // the same as drivers see it in their containers
	Node string
	// Drivers are those that there are.
	Drivers *Drivers
	// InUse is told what attached volumes are in use on the node, whenever that changes. It must not block.
	InUse func([]v1.UniqueVolumeName)
	Log   *slog.Logger
}

// Volumes are the volumes of CSI drivers on a node. Calls for different pods may be made concurrently, those
// for one pod not.
type Volumes struct {
	o    Options
	at   layout
	wake chan struct{} // holds a token when there may be something to unstage, or to measure

	mu struct {
		sync.Mutex
		volumes   map[string]*volume     // by the directory of their records
		published map[string]publication // what this process has published, by its path
		wanted    map[wish]time.Time     // since when pods want what they have not got yet
		changed   map[string]bool        // of what is published at these paths something has changed since Look
		tokens    map[tokenKey]token     // that drivers were given
		held      map[string]*held       // what is known of what volumes hold, by the path at which they are published
		asked     []*held                // those that Run is to measure
		detached  map[string]bool        // drivers that attach nothing, whatever they did when their volumes were attached
		inUse     []v1.UniqueVolumeName
	}
}

// publication is a volume that is published.
type publication struct {
	driver string
	again  time.Time // when to publish it anew; zero: never
	stale  bool      // it is to be set up anew, since something about it has changed
}

// wish is what a pod wants to be published at a path.
type wish struct {
	pod  types.UID
	path string
}

// volume is a volume that pods want, or that something is left of.
type volume struct {
	dir            string // of its record; of an inline volume, the pod's
	driver, handle string
	turn           chan struct{} // holds a token: who has taken it out does something to the volume (S3)

	// Guarded by the lock of Volumes.
	pods     map[types.UID]bool // that want it; true: it is published to the pod, perhaps
	attached bool               // it is attached to the node, by a VolumeAttachment
	recorded bool               // it is staged, perhaps
	staged   bool               // this process has staged it
	leaving  bool               // somebody sees to it that it is unstaged
}

// Open returns the volumes that there are on a node, as its disk says (S1).
func Open(o Options) (*Volumes, error) {
	s := &Volumes{o: o, at: layout{o.Root, o.Seen}, wake: make(chan struct{}, 1)}
	s.mu.volumes, s.mu.published = map[string]*volume{}, map[string]publication{}
	s.mu.wanted, s.mu.detached = map[wish]time.Time{}, map[string]bool{}
	s.mu.changed, s.mu.held, s.mu.tokens = map[string]bool{}, map[string]*held{}, map[tokenKey]token{}
	if err := os.MkdirAll(s.at.plugins(), 0o750); err != nil {
		return nil, fmt.Errorf("make directory of plugins: %w", err)
	}
	for _, pattern := range []string{filepath.Join(s.at.plugins(), "*", "*"), filepath.Join(s.at.plugins(), devices, "*", "data")} {
		if err := s.each(pattern, func(dir string, r record) { s.volumeLocked(dir, r).recorded = true }); err != nil {
			return nil, err
		}
	}
	for _, pattern := range []string{s.at.volumeDir("*", "*"), s.at.deviceLink("*", "*")} {
		err := s.each(pattern, func(dir string, r record) {
			uid := types.UID(filepath.Base(filepath.Dir(filepath.Dir(filepath.Dir(dir)))))
			s.volumeLocked(s.dirOf(dir, r), r).pods[uid] = true
		})
		if err != nil {
			return nil, err
		}
	}
	s.toldLocked()
	s.poke()
	return s, nil
}

// each calls f for the records of what matches the pattern, as long as nobody else knows of s. What cannot be read is left to who
// removes it.
func (s *Volumes) each(pattern string, f func(dir string, r record)) error {
	dirs, err := filepath.Glob(pattern)
	if err != nil {
		return fmt.Errorf("look for volumes: %w", err)
	}
	for _, dir := range dirs {
		r, err := s.recordOf(dir)
		switch {
		case err == nil:
			f(dir, r)
		case !errors.Is(err, fs.ErrNotExist):
			s.o.Log.Warn("look for volumes", "err", err)
		}
	}
	return nil
}

// recordOf is the record of a volume, of which at is a directory or a pod's link.
func (s *Volumes) recordOf(at string) (record, error) {
	if isLink(at) {
		at = s.at.deviceDir(filepath.Base(at))
	}
	return read(at)
}

// dirOf is where the record of a volume lies of which a pod has something at a directory or link of its own.
func (s *Volumes) dirOf(at string, r record) string {
	switch {
	case isLink(at):
		return s.at.deviceDir(filepath.Base(at))
	case r.Mode == string(storagev1.VolumeLifecycleEphemeral):
		return at
	}
	return s.at.stageDir(r.Driver, r.Handle)
}

// volumeLocked is the volume whose record lies, or will lie, in dir.
func (s *Volumes) volumeLocked(dir string, r record) *volume {
	v := s.mu.volumes[dir]
	if v == nil {
		v = &volume{dir: dir, driver: r.Driver, handle: r.Handle, turn: make(chan struct{}, 1), pods: map[types.UID]bool{}}
		v.turn <- struct{}{}
		s.mu.volumes[dir] = v
	}
	v.attached = v.attached || r.Attachment != ""
	return v
}

// toldLocked tells what is in use, if that has changed, and forgets what is not known of any more (S2).
func (s *Volumes) toldLocked() {
	now := []v1.UniqueVolumeName{}
	for dir, v := range s.mu.volumes {
		switch {
		case len(v.pods) == 0 && !v.recorded:
			delete(s.mu.volumes, dir)
		case v.attached && !s.mu.detached[v.driver]:
			now = append(now, csi.Name(v.driver, v.handle))
		}
	}
	slices.Sort(now)
	now = slices.Compact(now)
	if s.mu.inUse == nil || !slices.Equal(now, s.mu.inUse) {
		s.mu.inUse = now
		s.o.InUse(now)
	}
}

// poke has Run look for what is to be unstaged, or measured.
func (s *Volumes) poke() {
	select {
	case s.wake <- struct{}{}:
	default: // it has been told
	}
}

// enter waits for the volume's turn; leave gives it up.
func (v *volume) enter(ctx context.Context) (leave func(), err error) {
	select {
	case <-v.turn:
		return func() { v.turn <- struct{}{} }, nil
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
}

// record is what is written of the volume of a request.
func (s *Volumes) record(r *Request) record {
	return record{Name: r.Name(), Handle: r.Handle(), Driver: r.Driver(), Node: s.o.Node, Attachment: r.Attachment, Mode: string(r.mode())}
}

// home is where the record of the volume of a request lies.
func (s *Volumes) home(r *Request) string {
	if r.Device() {
		return s.at.deviceDir(r.Name())
	}
	return s.dirOf(s.at.volumeDir(r.Pod.UID, r.Name()), s.record(r))
}

// Path is where the volume of a request lies when it is published.
func (s *Volumes) Path(r *Request) string {
	if r.Device() {
		return s.at.devicePath(r.Pod.UID, r.Name())
	}
	return filepath.Join(s.at.volumeDir(r.Pod.UID, r.Name()), mountDir)
}

// DevicesOf is the directory, as drivers see it, in which a pod has links to its devices.
func (s *Volumes) DevicesOf(pod types.UID) string { return s.at.told(s.at.deviceLink(pod, "")) }

// Want says that a pod wants a volume: it is in use from now on, until TearDown.
func (s *Volumes) Want(r *Request) {
	s.mu.Lock()
	defer s.mu.Unlock()
	v := s.volumeLocked(s.home(r), s.record(r))
	v.wantLocked(r.Pod.UID)
	w := wish{r.Pod.UID, s.Path(r)}
	_, has := s.mu.published[w.path]
	if _, ok := s.mu.wanted[w]; !ok && !has {
		s.mu.wanted[w] = time.Now()
	}
	if r.Attachment == "" && !v.recorded && !v.publishedLocked("") {
		v.attached = false // it was to be, as long as the cluster did not know its driver
	}
	s.toldLocked()
}

// Hearing is follow, of which the volumes hear as well.
func (s *Volumes) Hearing(follow Follow) Follow {
	return func(ctx context.Context, driver string, tell func(*storagev1.CSIDriver)) error {
		return follow(ctx, driver, func(about *storagev1.CSIDriver) {
			s.heard(driver, about)
			tell(about)
		})
	}
}

// heard notes what the cluster knows of a driver. Of one that attaches nothing any more no volume is in use: attachments of earlier
// may go, under pods that go on with what is mounted.
func (s *Volumes) heard(driver string, about *storagev1.CSIDriver) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.mu.detached[driver] = true; storage.Attaches(about) {
		delete(s.mu.detached, driver)
	}
	s.toldLocked()
}

// wantLocked notes that a pod wants the volume.
func (v *volume) wantLocked(uid types.UID) {
	if _, ok := v.pods[uid]; !ok {
		v.pods[uid] = false
	}
}

// elsewhere reports whether the volume is published to another pod, perhaps.
func (s *Volumes) elsewhere(v *volume, uid types.UID) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return v.publishedLocked(uid)
}

// publishedLocked reports whether the volume is published, perhaps, to a pod other than one.
func (v *volume) publishedLocked(other types.UID) bool {
	for pod, has := range v.pods {
		if has && pod != other {
			return true
		}
	}
	return false
}

// Due is when the volume that is published at a path is to be set up anew; zero: not. ok is false if it is due now: this
// process has not published it, or something about it has changed.
func (s *Volumes) Due(path string) (again time.Time, ok bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	p, ok := s.mu.published[path]
	return p.again, ok && !p.stale
}

// Look says that it is now found out how the volume that is published at a path is to be: what Recheck is told of later counts
// for the SetUp after the next.
func (s *Volumes) Look(path string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.mu.changed, path)
}

// PluginAt is what metrics call the driver of what this process has published at a path; empty: nothing is.
func (s *Volumes) PluginAt(path string) string {
	s.mu.Lock()
	defer s.mu.Unlock()
	if p, ok := s.mu.published[path]; ok {
		return pluginOf(p.driver)
	}
	return ""
}

// Owns reports whether a path is one at which a driver publishes a volume.
func (s *Volumes) Owns(path string) bool {
	return filepath.Base(filepath.Dir(filepath.Dir(path))) == kind || strings.HasPrefix(path, s.at.plugins()+"/")
}

// Mounted reports whether something is published at a path, by whomever.
func (s *Volumes) Mounted(path string) bool { return mounted(path) }

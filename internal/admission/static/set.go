package static

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"sync/atomic"

	"github.com/kemudi/kemudi/internal/admission"
	"github.com/kemudi/kemudi/internal/inotify"
	"github.com/kemudi/kemudi/internal/resource"
)

// Kinds are what may lie in the directory of a plugin.
type Kinds struct {
	Plugin string // its name
	Defs   []*resource.Def
	// Check refuses an object that is good for the API, but not as a file.
	Check func(obj resource.Object) error
	// Whole refuses objects that do not go together; nil: all do.
	Whole func(c *Content) error
}

// Set is what lies in a directory. Its methods may be called concurrently; those of nil say that there is
// nothing.
type Set struct {
	kinds   Kinds
	dir     string
	metrics *metrics
	log     *slog.Logger
	now     atomic.Pointer[Content]
}

// Content is the objects of a directory at one time. It is read-only.
type Content struct {
	digest  string
	objects map[*resource.Def][]resource.Object
}

// Of are the objects of a kind, in the order of their names.
func (c *Content) Of(def *resource.Def) []resource.Object {
	if c == nil {
		return nil
	}
	return c.objects[def]
}

// Open reads a directory for the first time; without one there is no set. An error says what is wrong there.
func Open(o *admission.Options, k Kinds, dir string) (*Set, error) {
	if dir == "" {
		return nil, nil
	}
	if err := checkDir(dir); err != nil {
		return nil, fmt.Errorf("staticManifestsDir: Invalid value: %q: %w", dir, err)
	}
	s := &Set{kinds: k, dir: dir, metrics: newMetrics(o.Registry, k.Plugin, o.Server), log: o.Logger}
	if s.log == nil {
		s.log = slog.New(slog.DiscardHandler)
	}
	c, err := s.read()
	if err != nil {
		return nil, fmt.Errorf("staticManifestsDir: %w", err)
	}
	s.now.Store(c)
	s.metrics.force(c.digest)
	return s, nil
}

func checkDir(dir string) error {
	if !filepath.IsAbs(dir) {
		return errors.New("must be an absolute file path")
	}
	info, err := os.Stat(dir)
	if err != nil {
		return fmt.Errorf("unable to read: %w", err)
	}
	if !info.IsDir() {
		return errors.New("must be a directory")
	}
	return nil
}

// Now is what lies in the directory, as it was good last; nil: there is no directory. It is another one after each
// change.
func (s *Set) Now() *Content {
	if s == nil {
		return nil
	}
	return s.now.Load()
}

// Run reads the directory again when something there has changed, until ctx ends. What is not good is told of,
// and changes nothing.
func (s *Set) Run(ctx context.Context) error {
	bad := ""
	err := inotify.Follow(ctx, filepath.Join(s.dir, "any"), func(ctx context.Context) bool {
		c, err := s.read()
		switch {
		case err != nil && err.Error() == bad: // it was told of
		case err != nil:
			bad = err.Error()
			s.metrics.read("failure")
			s.log.ErrorContext(ctx, "files of admission are not taken over", "plugin", s.kinds.Plugin, "err", err)
		case c.digest != s.now.Load().digest:
			bad = ""
			s.now.Store(c)
			s.metrics.read("success")
			s.metrics.force(c.digest)
			s.log.InfoContext(ctx, "files of admission have changed", "plugin", s.kinds.Plugin)
		default:
			bad = ""
		}
		return false
	})
	if err != nil && ctx.Err() == nil {
		s.log.WarnContext(ctx, "files of admission are not read again until the server starts anew", "plugin", s.kinds.Plugin, "err", err)
	}
	return nil
}

// Runner is what a plugin with the set does beside; nil: nothing.
func (s *Set) Runner() func(ctx context.Context) error {
	if s == nil {
		return nil
	}
	return s.Run
}

// sorted puts the objects of each kind into the order of their names.
func sorted(objects map[*resource.Def][]resource.Object) map[*resource.Def][]resource.Object {
	for _, list := range objects {
		slices.SortFunc(list, func(a, b resource.Object) int { return cmp.Compare(a.GetName(), b.GetName()) })
	}
	return objects
}

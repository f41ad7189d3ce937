package backup

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
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"golang.org/x/sys/unix"

	"github.com/kemudi/kemudi/internal/api/batch"
)

// again is after what time a backup that failed is tried again, and by what time at the latest it is seen that the clock was set.
const again = time.Hour

// A Snapshot is a store that must be closed.
type Snapshot interface {
	Store
	Close() error
}

// MakerOptions are what a Maker is made of.
type MakerOptions struct {
	Options
	Server   string // its name: several may have one directory
	Keys     string // the directory of its keys
	Snapshot func(ctx context.Context) (Snapshot, error)
	Logger   *slog.Logger
	Registry prometheus.Registerer
}

// A Maker makes the backups of a server by its schedule: kemudi-SERVER-TIME.tgz. One that was due while nobody made it is made
// at once, and so is the first one, that one knows whether they can be made. Whatever else is in the directory is left alone.
type Maker struct {
	o        MakerOptions
	schedule batch.Schedule
	last     prometheus.Gauge
	failed   prometheus.Counter
}

// NewMaker needs options that are checked. Call Run.
func NewMaker(o MakerOptions) (*Maker, error) {
	s, err := batch.ParseSchedule(o.Schedule)
	if err != nil {
		return nil, fmt.Errorf("schedule of backups: %w", err)
	}
	m := &Maker{
		o: o, schedule: s,
		last:   prometheus.NewGauge(prometheus.GaugeOpts{Name: "kemudi_backup_last_timestamp_seconds", Help: "When the newest backup that is kept was begun."}),
		failed: prometheus.NewCounter(prometheus.CounterOpts{Name: "kemudi_backup_failures_total", Help: "Backups by schedule that could not be made."}),
	}
	o.Registry.MustRegister(m.last, m.failed)
	return m, nil
}

// Run makes backups until ctx ends. One that fails is told, counted, and tried again after an hour.
func (m *Maker) Run(ctx context.Context) error {
	due := m.due()
	timer := time.NewTimer(untilThen(due))
	defer timer.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-timer.C:
		}
		wait := again
		if now := time.Now().Round(0); now.Before(due) {
			wait = untilThen(due)
		} else if err := m.make(ctx, now); err == nil {
			due = m.schedule.Next(now)
			wait = untilThen(due)
		} else if ctx.Err() == nil {
			m.failed.Inc()
			m.o.Logger.Error("the cluster was not backed up", "err", err, "directory", m.o.Dir, "again", now.Add(again).Format(time.TimeOnly))
		}
		timer.Reset(wait)
	}
}

// untilThen is how long to wait, by the clock of the wall, before it is looked at again.
func untilThen(due time.Time) time.Duration { return min(time.Until(due), again) }

// due is when the first backup is.
func (m *Maker) due() time.Time {
	now := time.Now().Round(0)
	made, err := m.made()
	if err != nil || len(made) == 0 {
		return now // what is wrong is told then
	}
	newest := made[len(made)-1]
	m.last.Set(float64(newest.Unix()))
	if newest.After(now) { // by a clock that was wrong
		newest = now
	}
	return m.schedule.Next(newest)
}

// make makes a backup, and removes those that are too many then.
func (m *Maker) make(ctx context.Context, now time.Time) (err error) {
	if err := os.MkdirAll(m.o.Dir, 0o700); err != nil {
		return fmt.Errorf("make the directory of backups: %w", err)
	}
	m.tidy() // before it is seen how much room there is
	s, err := m.snapshot(ctx)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, s.Close()) }()
	if err := room(m.o.Dir, s.Size()); err != nil {
		return err
	}
	file := filepath.Join(m.o.Dir, m.name(now))
	if err := Write(ctx, file, s, m.o.Keys); err != nil {
		return err
	}
	m.last.Set(float64(now.Unix()))
	m.o.Logger.Info("the cluster is backed up", "file", file)
	return m.prune()
}

// answerWithin is how long the store may take to say how far it is.
const answerWithin = time.Minute

func (m *Maker) snapshot(ctx context.Context) (Snapshot, error) {
	ctx, cancel := context.WithTimeout(ctx, answerWithin)
	defer cancel()
	return m.o.Snapshot(ctx)
}

// room: a backup must not fill a disk that may be the store's as well. It is not larger than the store.
func room(dir string, size int64) error {
	var disk unix.Statfs_t
	if err := unix.Statfs(dir, &disk); err != nil {
		return fmt.Errorf("look for room in %s: %w", dir, err)
	}
	if left := int64(disk.Bavail) * disk.Bsize; left < size {
		return fmt.Errorf("%s has room for %d MiB, and the store has %d: remove files there, or name another directory (--backup-dir)", dir, left>>20, size>>20)
	}
	return nil
}

// prune removes the oldest backups beyond those that are kept.
func (m *Maker) prune() error {
	made, err := m.made()
	if err != nil || m.o.Keep == 0 {
		return err
	}
	for len(made) > m.o.Keep {
		if err := os.Remove(filepath.Join(m.o.Dir, m.name(made[0]))); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return fmt.Errorf("remove an old backup: %w", err)
		}
		made = made[1:]
	}
	return nil
}

// tidy removes what is left of backups amid which the program was killed.
func (m *Maker) tidy() {
	halves, _ := filepath.Glob(filepath.Join(m.o.Dir, ".kemudi-*.tgz.*")) // the pattern is a good one
	for _, half := range halves {
		if name, _, _ := strings.Cut(filepath.Base(half)[1:], ".tgz."); !m.at(name + suffix).IsZero() {
			_ = os.Remove(half) // else the next time
		}
	}
}

// stamp is how times are written in names of backups, which are in UTC.
const (
	stamp  = "20060102T150405Z"
	suffix = ".tgz"
)

func (m *Maker) prefix() string           { return "kemudi-" + m.o.Server + "-" }
func (m *Maker) name(at time.Time) string { return m.prefix() + at.UTC().Format(stamp) + suffix }

// at is when the backup of that name was begun; zero: it is none of this server's.
func (m *Maker) at(name string) time.Time {
	text, ok := strings.CutPrefix(name, m.prefix())
	if !ok {
		return time.Time{}
	}
	at, err := time.Parse(stamp+suffix, text)
	if err != nil {
		return time.Time{}
	}
	return at
}

// made lists the backups that there are, from the oldest to the newest.
func (m *Maker) made() ([]time.Time, error) {
	files, err := os.ReadDir(m.o.Dir)
	if err != nil {
		return nil, fmt.Errorf("list backups: %w", err)
	}
	var made []time.Time
	for _, f := range files {
		if at := m.at(f.Name()); !at.IsZero() {
			made = append(made, at)
		}
	}
	slices.SortFunc(made, time.Time.Compare)
	return made, nil
}

package audit

import (
	"compress/gzip"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"
)

// Old files are called as the file is, with the time at which it was turned over before
// the extension, in UTC: audit-2026-01-02T15-04-05.000.log, and .gz after it when it is
// compressed. So do the programs that people replace by this one.
const (
	oldTime      = "2006-01-02T15-04-05.000"
	packedSuffix = ".gz"
)

// oldName is the name of the file when it is turned over.
func oldName(path string, at time.Time) string {
	ext := filepath.Ext(path)
	return strings.TrimSuffix(path, ext) + "-" + at.UTC().Format(oldTime) + ext
}

// oldFile is one that was turned over.
type oldFile struct {
	name   string // with its directory, without .gz
	at     time.Time
	plain  bool // it is there as it was
	packed bool // it is there compressed, if not plain as well: then that was not finished
}

// keeping says which old files are kept, and how. 0 is no bound.
type keeping struct {
	days, files int
	compress    bool
}

// tidy removes old files that are not to be kept, and compresses others.
func (k *keeping) tidy(ctx context.Context, path string, now time.Time) error {
	if k.days == 0 && k.files == 0 && !k.compress {
		return nil
	}
	old, err := oldFiles(path)
	if err != nil {
		return err
	}
	var errs []error
	for i, f := range old {
		switch {
		case k.files > 0 && i >= k.files, k.days > 0 && now.Sub(f.at) > time.Duration(k.days)*24*time.Hour:
			errs = append(errs, f.remove())
		case k.compress && f.plain && ctx.Err() == nil:
			errs = append(errs, f.pack(ctx))
		}
	}
	return errors.Join(errs...)
}

// oldFiles are those of a path, the newest first.
func oldFiles(path string) ([]oldFile, error) {
	entries, err := os.ReadDir(filepath.Dir(path))
	if err != nil {
		return nil, err
	}
	ext := filepath.Ext(path)
	begin := strings.TrimSuffix(filepath.Base(path), ext) + "-"
	found := map[string]*oldFile{}
	for _, e := range entries {
		name, packed := strings.CutSuffix(e.Name(), packedSuffix)
		text, ok := strings.CutPrefix(name, begin)
		if !ok || e.IsDir() || !strings.HasSuffix(text, ext) {
			continue
		}
		at, err := time.Parse(oldTime, strings.TrimSuffix(text, ext))
		if err != nil {
			continue // somebody else's
		}
		f := found[name]
		if f == nil {
			f = &oldFile{name: filepath.Join(filepath.Dir(path), name), at: at}
			found[name] = f
		}
		f.plain, f.packed = f.plain || !packed, f.packed || packed
	}
	list := make([]oldFile, 0, len(found))
	for _, f := range found {
		list = append(list, *f)
	}
	slices.SortFunc(list, func(a, b oldFile) int { return b.at.Compare(a.at) })
	return list, nil
}

func (f *oldFile) remove() error {
	var errs []error
	if f.plain {
		errs = append(errs, os.Remove(f.name))
	}
	if f.packed {
		errs = append(errs, os.Remove(f.name+packedSuffix))
	}
	return errors.Join(errs...)
}

// pack compresses the file, which is removed when that has come to the disk.
func (f *oldFile) pack(ctx context.Context) (err error) {
	from, err := os.Open(f.name)
	if err != nil {
		return err
	}
	defer from.Close()
	info, err := from.Stat()
	if err != nil {
		return err
	}
	to, err := os.OpenFile(f.name+packedSuffix, os.O_CREATE|os.O_TRUNC|os.O_WRONLY, info.Mode().Perm())
	if err != nil {
		return err
	}
	z := gzip.NewWriter(to)
	_, err = io.Copy(z, untilDone{ctx, from})
	if err = errors.Join(err, z.Close(), to.Sync(), to.Close()); err != nil {
		return errors.Join(fmt.Errorf("compress %s: %w", f.name, err), os.Remove(to.Name()))
	}
	return os.Remove(f.name)
}

// untilDone reads until ctx ends.
type untilDone struct {
	ctx  context.Context
	from io.Reader
}

func (r untilDone) Read(p []byte) (int, error) {
	if r.ctx.Err() != nil {
		return 0, context.Cause(r.ctx)
	}
	return r.from.Read(p)
}

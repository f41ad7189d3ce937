package logs

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"github.com/kemudi/kemudi/internal/inotify"
)

// Options say which part of a log is read and how.
type Options struct {
	Since time.Time // zero: from the beginning
	Tail  int64     // last lines only; negative: all
	Limit int64     // bytes of output; negative: no limit

	Follow     bool
	Timestamps bool
	// Stdout and Stderr take the streams; nil: not wanted.
	Stdout, Stderr io.Writer

	// Done is closed when the container has ended, which ends following.
	Done <-chan struct{}
	// Flush is called whenever all there is has been written; may be nil.
	Flush func()
}

// errLimit ends reading when enough has been written.
var errLimit = errors.New("limit reached")

// Read writes the log at path as o says. While following it waits for changes of
// the file and notices when it is replaced by a new one.
func Read(ctx context.Context, path string, o Options) error {
	r := &reader{path: path, o: o, left: o.Limit}
	defer r.close()
	if o.Follow {
		var err error
		// The directory covers the file, its replacement and its writers.
		if r.watch, err = inotify.Watch(filepath.Dir(path), inotify.Written|inotify.Moved); err != nil {
			return fmt.Errorf("watch log: %w", err)
		}
	}
	if err := r.open(); err != nil {
		return err
	}
	if o.Tail >= 0 {
		if err := seekTail(r.f, o.Tail); err != nil {
			return fmt.Errorf("find end of log: %w", err)
		}
	}
	r.in = bufio.NewReaderSize(r.f, 32<<10)
	err := r.run(ctx)
	if errors.Is(err, errLimit) {
		return nil
	}
	return err
}

type reader struct {
	path  string
	o     Options
	f     *os.File
	in    *bufio.Reader
	watch *inotify.Watcher // nil: not following
	left  int64            // bytes that may still be written; negative: any
	part  []byte           // of a line that has not been written by the runtime whole
	mid   bool             // the last line written is to go on
}

func (r *reader) open() error {
	f, err := os.Open(r.path)
	if err != nil {
		return fmt.Errorf("open log: %w", err)
	}
	r.f = f
	return nil
}

func (r *reader) close() {
	if r.f != nil {
		_ = r.f.Close() // it was only read
	}
	if r.watch != nil {
		r.watch.Close()
	}
}

func (r *reader) run(ctx context.Context) error {
	ended := false
	for {
		if err := r.drain(ctx); err != nil {
			return err
		}
		if r.o.Flush != nil {
			r.o.Flush()
		}
		if r.watch == nil || ended {
			return nil
		}
		if next, err := r.next(ctx); err != nil || next {
			if err != nil {
				return err
			}
			continue
		}
		select {
		case <-r.watch.Changed:
		case <-r.o.Done:
			ended = true // once more: what was written up to the end
		case <-ctx.Done():
			return nil
		}
	}
}

// drain writes all that the file holds.
func (r *reader) drain(ctx context.Context) error {
	for ctx.Err() == nil {
		line, err := r.in.ReadSlice('\n')
		r.part = append(r.part, line...)
		if errors.Is(err, bufio.ErrBufferFull) {
			continue
		}
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return fmt.Errorf("read log: %w", err)
		}
		if err := r.write(r.part); err != nil {
			return err
		}
		r.part = r.part[:0]
	}
	return nil
}

// next goes on to a new file if the log has been rotated.
func (r *reader) next(ctx context.Context) (bool, error) {
	now, err := os.Stat(r.path)
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil // between renaming and making the new one
	}
	if err != nil {
		return false, fmt.Errorf("look at log: %w", err)
	}
	mine, err := r.f.Stat()
	if err != nil {
		return false, fmt.Errorf("look at log: %w", err)
	}
	if os.SameFile(now, mine) {
		return false, nil
	}
	// Its writer has left the old file, perhaps after some more lines.
	if err := r.drain(ctx); err != nil {
		return false, err
	}
	old := r.f
	if err := r.open(); err != nil {
		return false, err
	}
	_ = old.Close() // it was only read
	r.in.Reset(r.f)
	r.part = r.part[:0]
	return true, nil
}

// write puts out one line of the file, if it is wanted.
func (r *reader) write(raw []byte) error {
	l, ok := parse(raw)
	if !ok || l.at.Before(r.o.Since) {
		return nil
	}
	out := r.o.Stdout
	if l.stderr {
		out = r.o.Stderr
	}
	if out == nil {
		return nil
	}
	var text []byte
	if r.o.Timestamps && !r.mid {
		text = append(append(text, l.stamp...), ' ')
	}
	r.mid = l.partial
	text = append(text, l.text...)
	if !l.partial {
		text = append(text, '\n')
	}
	limited := r.left >= 0 && int64(len(text)) >= r.left
	if limited {
		text = text[:r.left]
	}
	if _, err := out.Write(text); err != nil {
		return err
	}
	if limited {
		return errLimit
	}
	if r.left >= 0 {
		r.left -= int64(len(text))
	}
	return nil
}

// line is one line of a log file.
type line struct {
	stamp   []byte
	at      time.Time
	stderr  bool
	partial bool
	text    []byte
}

// parse takes a line apart; ok is false if it is none.
func parse(raw []byte) (l line, ok bool) {
	raw = bytes.TrimSuffix(raw, []byte("\n"))
	stamp, rest, ok := bytes.Cut(raw, []byte(" "))
	if !ok {
		return l, false
	}
	stream, rest, ok := bytes.Cut(rest, []byte(" "))
	if !ok {
		return l, false
	}
	tags, text, _ := bytes.Cut(rest, []byte(" "))
	at, err := time.Parse(time.RFC3339Nano, string(stamp))
	if err != nil {
		return l, false
	}
	switch string(stream) {
	case "stdout":
	case "stderr":
		l.stderr = true
	default:
		return l, false
	}
	tag, _, _ := bytes.Cut(tags, []byte(":"))
	l.stamp, l.at, l.text, l.partial = stamp, at, text, string(tag) == "P"
	return l, true
}

// seekTail puts the file's position before its last n lines.
func seekTail(f *os.File, n int64) error {
	size, err := f.Seek(0, io.SeekEnd)
	if err != nil {
		return err
	}
	const block = 16 << 10
	buf := make([]byte, block)
	found := int64(0)
	for pos := size; pos > 0; {
		from := max(pos-block, 0)
		b := buf[:pos-from]
		if _, err := f.ReadAt(b, from); err != nil {
			return err
		}
		for i := len(b) - 1; i >= 0; i-- {
			if b[i] != '\n' {
				continue
			}
			at := from + int64(i) + 1
			if at == size && found == 0 && n > 0 {
				continue // the end of the last line
			}
			if found++; found >= n {
				_, err := f.Seek(at, io.SeekStart)
				return err
			}
		}
		pos = from
	}
	if n == 0 {
		return nil
	}
	_, err = f.Seek(0, io.SeekStart)
	return err
}

// Last returns the text of the last lines of a log, at most so many bytes: what
// a container said before it failed.
func Last(ctx context.Context, path string, lines, limit int64) (string, error) {
	var out bytes.Buffer
	err := Read(ctx, path, Options{Tail: lines, Limit: -1, Stdout: &out, Stderr: &out})
	if err != nil {
		return "", err
	}
	b := out.Bytes()
	if int64(len(b)) > limit {
		b = b[int64(len(b))-limit:]
	}
	return string(b), nil
}

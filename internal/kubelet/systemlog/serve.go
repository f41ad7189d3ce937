package systemlog

import (
	"compress/gzip"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/http"
	"os"
	"os/exec"
	"slices"
	"strings"
	"time"
)

// Logs are the machine's own.
type Logs struct {
	Dir     string // of the files: /var/log
	Queries bool   // ?query= and its options count
	// Own is the file that this process logs to, by its path; empty: it logs elsewhere.
	Own string
	// Journal is the program that reads the machine's journal, journalctl unless it is said; where it is not
	// installed there is none.
	Journal string
}

// longest is how long a query may take.
const longest = 30 * time.Second

// Handler serves the files by their paths below the directory, and what is asked of them.
func (l Logs) Handler() http.Handler {
	files := Directory(l.Dir)
	if !l.Queries {
		return files
	}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		q, asked, errs := parse(r.URL.Query())
		switch {
		case len(errs) > 0:
			http.Error(w, errs.ToAggregate().Error(), http.StatusBadRequest)
		case !asked:
			files.ServeHTTP(w, r)
		case r.URL.Path != "" && r.URL.Path != "/":
			http.Error(w, "path not allowed in query mode", http.StatusNotAcceptable)
		default:
			l.answer(w, r, q)
		}
	})
}

// answer serves what a query asks for.
func (l Logs) answer(w http.ResponseWriter, r *http.Request, q query) {
	root, err := os.OpenRoot(l.Dir)
	if err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return
	}
	defer root.Close()
	if errs := q.check(root); len(errs) > 0 {
		http.Error(w, errs.ToAggregate().Error(), http.StatusNotAcceptable)
		return
	}
	if len(q.files) == 1 {
		http.ServeFileFS(w, r, root.FS(), below(q.files[0]))
		return
	}
	ctx, cancel := context.WithTimeout(r.Context(), longest)
	defer cancel()
	w.Header().Set("Content-Type", "text/plain;charset=UTF-8")
	var out io.Writer = w
	if r.Header.Get("Accept-Encoding") == "gzip" {
		w.Header().Set("Content-Encoding", "gzip")
		packed, err := gzip.NewWriterLevel(w, gzip.BestSpeed)
		if err != nil {
			panic(fmt.Sprintf("compress at level %d: %v", gzip.BestSpeed, err))
		}
		defer packed.Close() // an error means that the client has gone
		out = packed
	}
	l.copyServices(ctx, root, q, out)
}

// copyServices writes what services have logged: those that the journal knows by its program, the others by the files
// that are called after them. What goes wrong is told among the lines, which have begun.
func (l Logs) copyServices(ctx context.Context, root *os.Root, q query, out io.Writer) {
	units := l.units(ctx)
	var native, others []string
	for _, name := range q.services {
		switch {
		case slices.Contains(units, name+".service"):
			native = append(native, name)
		case slices.Contains(ownNames, name) && slices.Contains(units, ownUnit):
			native = append(native, strings.TrimSuffix(ownUnit, ".service"))
		default:
			others = append(others, name)
		}
	}
	if len(native) > 0 {
		cmd := l.command(ctx, q.arguments(native)...)
		cmd.Stdout, cmd.Stderr = out, out
		var exit *exec.ExitError
		if err := cmd.Run(); err != nil && !errors.As(err, &exit) { // else the program has told it
			fmt.Fprint(out, "\nerror: journal output not available\n")
		}
	}
	if len(others) > 0 && q.any() {
		fmt.Fprintf(out, "\noptions present and query resolved to log files for %v\ntry without specifying options\n", others)
		return
	}
	for _, name := range others {
		l.copyFile(ctx, root, name, out)
	}
}

// ownNames are programs elsewhere whose part this process takes, and ownUnit is the unit in which it runs where
// nobody has called it otherwise.
var ownNames = []string{"kemudi", "kubelet", "kube-proxy", "containerd"}

const ownUnit = "kemudi.service"

// OwnLog is the file that this process logs to; empty: none.
func OwnLog() string {
	path, err := os.Readlink("/proc/self/fd/2")
	if err != nil {
		return ""
	}
	if info, err := os.Stat(path); err != nil || !info.Mode().IsRegular() {
		return "" // a terminal or a pipe
	}
	return path
}

// units are those that the journal has lines of.
func (l Logs) units(ctx context.Context) []string {
	text, err := l.command(ctx, "--field", "_SYSTEMD_UNIT").Output()
	if err != nil {
		return nil // there is no journal
	}
	return strings.Fields(string(text))
}

func (l Logs) command(ctx context.Context, args ...string) *exec.Cmd {
	name := l.Journal
	if name == "" {
		name = "journalctl"
	}
	return exec.CommandContext(ctx, name, args...)
}

// timeFormat is how the journal's program is told a time.
const timeFormat = "2006-01-02 15:04:05 UTC"

// arguments make the journal's program show what is asked for of services.
func (q *query) arguments(services []string) []string {
	args := []string{"--utc", "--no-pager", "--output=short-precise"}
	if !q.since.IsZero() {
		args = append(args, "--since="+q.since.UTC().Format(timeFormat))
	}
	if !q.until.IsZero() {
		args = append(args, "--until="+q.until.UTC().Format(timeFormat))
	}
	if q.lines >= 0 {
		args = append(args, fmt.Sprintf("--lines=%d", q.lines))
	}
	for _, name := range services {
		args = append(args, "--unit="+name)
	}
	if q.pattern != "" {
		args = append(args, "--grep="+q.pattern, "--case-sensitive=false")
	}
	if q.boot != nil {
		args = append(args, "--boot", fmt.Sprint(*q.boot))
	}
	return args
}

// copyFile writes the first file that there is of those in which a service may log.
func (l Logs) copyFile(ctx context.Context, root *os.Root, service string, out io.Writer) {
	for _, name := range []string{service, service + ".log", service + "/" + service + ".log"} {
		err := regular(root, name)
		if err == nil {
			err = copyOpened(ctx, out, func() (*os.File, error) { return root.Open(name) })
		}
		switch {
		case errors.Is(err, fs.ErrNotExist), errors.Is(err, errDirectory):
			continue
		case err != nil:
			fmt.Fprintf(out, "\nerror getting log for %s: %v\n", service, err)
		}
		return
	}
	if l.Own != "" && slices.Contains(ownNames, service) {
		if copyOpened(ctx, out, func() (*os.File, error) { return os.Open(l.Own) }) == nil {
			return
		}
	}
	fmt.Fprintf(out, "\nlog not found for %s\n", service)
}

func copyOpened(ctx context.Context, out io.Writer, open func() (*os.File, error)) error {
	f, err := open()
	if err != nil {
		return err
	}
	defer f.Close()
	_, err = io.Copy(out, readerUntil{ctx, f})
	return err
}

var errDirectory = errors.New("a directory")

// regular says why a name is not that of a file that can be read to its end: who opens another one may wait for ever.
func regular(root *os.Root, name string) error {
	info, err := root.Stat(name)
	switch {
	case err != nil:
		return err
	case info.IsDir():
		return errDirectory
	case !info.Mode().IsRegular():
		return errors.New("not a regular file")
	}
	return nil
}

// readerUntil reads until a context ends.
type readerUntil struct {
	ctx context.Context
	io.Reader
}

func (r readerUntil) Read(p []byte) (int, error) {
	if err := r.ctx.Err(); err != nil {
		return 0, err
	}
	return r.Reader.Read(p)
}

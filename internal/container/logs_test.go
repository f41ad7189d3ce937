package container

import (
	"bytes"
	"errors"
	"log/slog"
	"strconv"
	"strings"
	"testing"

	"github.com/sirupsen/logrus"
)

func TestContainerdLogsThroughOurs(t *testing.T) {
	var buf bytes.Buffer
	text := slog.NewTextHandler(&buf, &slog.HandlerOptions{Level: slog.LevelDebug, ReplaceAttr: func(_ []string, a slog.Attr) slog.Attr {
		if a.Key == slog.TimeKey {
			return slog.Attr{}
		}
		return a
	}})
	var fatal string
	routeLogs(Options{Logger: slog.New(text), LogLevel: slog.LevelWarn}, func(message string) { fatal = message })
	defer routeLogs(Options{Logger: slog.New(slog.DiscardHandler), LogLevel: slog.LevelWarn}, func(string) {})

	log := logrus.StandardLogger()
	log.Info("not wanted at this level")
	log.WithError(errors.New("full")).WithField("id", "x").Warn("cannot write")
	log.Warn(harmless[0].start)
	log.WithError(errors.New("reading from a closed fifo")).Errorf("Failed to pipe stdout of container %q", "c1")
	log.WithError(errors.New("disk on fire")).Errorf("Failed to pipe stdout of container %q", "c1")
	const pidFile = `time="2026-11-21T23:22:10Z" level=warning msg="failed to read init pid file" error="open /run/x"` + "\n"
	log.WithField("warnings", pidFile).Warn("warnings while cleaning up dead shim")
	log.WithField("warnings", pidFile+"level=warning msg=other\n").Warn("warnings while cleaning up dead shim")
	ended := make(chan bool)
	go func() {
		defer close(ended)
		log.WithError(errors.New("gone")).Fatal("store failed")
		ended <- true
	}()
	if <-ended {
		t.Error("a fatal message did not end its goroutine")
	}
	want := `level=WARN msg="cannot write" part=containerd err=full id=x
level=DEBUG msg="` + harmless[0].start + `" part=containerd
level=DEBUG msg="Failed to pipe stdout of container \"c1\"" part=containerd err="reading from a closed fifo"
level=ERROR msg="Failed to pipe stdout of container \"c1\"" part=containerd err="disk on fire"
level=DEBUG msg="warnings while cleaning up dead shim" part=containerd warnings=` + strconv.Quote(pidFile) + `
level=WARN msg="warnings while cleaning up dead shim" part=containerd warnings=` + strconv.Quote(pidFile+"level=warning msg=other\n") + `
level=ERROR msg="store failed" part=containerd err=gone
`
	if got := buf.String(); got != want {
		t.Errorf("log: got\n%swant\n%s", got, want)
	}
	if !strings.Contains(fatal, "store failed: gone") {
		t.Errorf("fatal message: got %q", fatal)
	}
}

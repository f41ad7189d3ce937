package container

import (
	"bytes"
	"errors"
	"log/slog"
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
	log.Warn(harmless[0])
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
level=DEBUG msg="` + harmless[0] + `" part=containerd
level=ERROR msg="store failed" part=containerd err=gone
`
	if got := buf.String(); got != want {
		t.Errorf("log: got\n%swant\n%s", got, want)
	}
	if !strings.Contains(fatal, "store failed: gone") {
		t.Errorf("fatal message: got %q", fatal)
	}
}

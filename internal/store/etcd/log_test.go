package etcd

import (
	"bytes"
	"log/slog"
	"strings"
	"testing"

	"go.uber.org/zap"
)

func TestExpectedWarningsAreDebugMessages(t *testing.T) {
	var out bytes.Buffer
	log := zap.New(slogCore{log: slog.New(slog.NewTextHandler(&out, nil))})
	log.Info("chatter")
	log.Warn("8e9e05c52164694d cannot campaign at term 1 since there are still pending configuration changes to apply")
	log.Warn("failed to update cluster version", zap.String("error", "etcdserver: request cancelled"))
	log.Warn("simple token is not cryptographically signed")
	if got := out.String(); got != "" {
		t.Errorf("log: got %q, want nothing", got)
	}
	log.Warn("slow fdatasync", zap.String("took", "2s"))
	if got := out.String(); !strings.Contains(got, "level=WARN msg=\"slow fdatasync\" took=2s") {
		t.Errorf("log: got %q, want the warning", got)
	}
}

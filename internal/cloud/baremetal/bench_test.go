package baremetal

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// BenchmarkQuestionAboutOneMachineOfMany is what a question costs that needs no hook.
func BenchmarkQuestionAboutOneMachineOfMany(b *testing.B) {
	var text strings.Builder
	text.WriteString("machines:\n")
	for i := range 1000 {
		fmt.Fprintf(&text, "- {name: n%d, id: s%d, type: r640, zone: rack-%d, addresses: [{type: InternalIP, address: 10.0.%d.%d}]}\n", i, i, i/40, i/250, i%250)
	}
	path, old := filepath.Join(b.TempDir(), "inventory.yaml"), time.Now().Add(-time.Hour)
	if err := os.WriteFile(path, []byte(text.String()), 0o600); err != nil {
		b.Fatal(err)
	}
	if err := os.Chtimes(path, old, old); err != nil {
		b.Fatal(err)
	}
	c, err := Open(path)
	if err != nil {
		b.Fatal(err)
	}
	m, _ := c.InstancesV2()
	b.ReportAllocs()
	for b.Loop() {
		if there, err := m.InstanceExists(b.Context(), node("n999")); err != nil || !there {
			b.Fatalf("got %v, %v", there, err)
		}
	}
}

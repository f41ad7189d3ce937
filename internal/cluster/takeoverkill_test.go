//go:build !race

package cluster

import (
	"bytes"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kemudi/kemudi/internal/task"
)

// takesOver is where the server of another process is that takes over, as FROM PKI DIR PORT.
const takesOver = "KEMUDI_TEST_TAKES_OVER"

// TestTakeoverThatIsKilledIsMadeWholeOrNotAtAll kills servers while they take over, and lets the
// next one go through.
func TestTakeoverThatIsKilledIsMadeWholeOrNotAtAll(t *testing.T) {
	if text := os.Getenv(takesOver); text != "" {
		parts := strings.Fields(text)
		o, _ := taking(t, parts[0])
		o.Takeover.PKI, o.DataDir, o.RunDir = parts[1], parts[2]+"/data", parts[2]+"/run"
		t.Error(Run(t.Context(), o)) // until it is killed
		return
	}
	t.Parallel()
	from, keys := oldCluster(t), kubeadmKeys(t)
	given, err := os.ReadFile(filepath.Join(keys, "ca.crt"))
	if err != nil {
		t.Fatal(err)
	}
	seed := uint64(time.Now().UnixNano())
	t.Logf("seed %d", seed)
	random := rand.New(rand.NewPCG(seed, 0))
	nothing, whole := 0, 0
	begin := time.Now()
	first, _ := taking(t, from)
	first.Takeover.PKI = keys
	_, stop := runServer(t, first)
	full := time.Since(begin) // on this machine, now
	if err := stop(); err != nil {
		t.Fatal(err)
	}
	for range 12 {
		o, steps := taking(t, from)
		o.Takeover.PKI = keys
		cmd := exec.Command(os.Args[0], "-test.run", "^"+t.Name()+"$")
		cmd.Env = append(os.Environ(), takesOver+"="+strings.Join([]string{from, keys, filepath.Dir(o.DataDir), strconv.Itoa(int(o.SecurePort))}, " "))
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		_ = task.Sleep(t.Context(), time.Duration(random.Int64N(int64(full))))
		_ = cmd.Process.Kill()
		_ = cmd.Wait() // it was killed
		_, errEtcd := os.Stat(filepath.Join(o.DataDir, "etcd"))
		_, errKeys := os.Stat(filepath.Join(o.DataDir, "pki", "sa.key"))
		_, errTaken := os.Stat(filepath.Join(o.DataDir, "taken"))
		if errTaken != nil && (errEtcd == nil) != (errKeys == nil) {
			t.Errorf("half of it is there: the store %v, the keys %v", errEtcd, errKeys)
		}
		api, stop := runServer(t, o)
		if slices.Contains(*steps, "copied the store of "+from) {
			nothing++
		} else {
			whole++
		}
		if _, err := api.AppsV1().Deployments("default").Get(t.Context(), "d", metav1.GetOptions{}); err != nil {
			t.Error(err)
		}
		if authority, err := os.ReadFile(filepath.Join(o.DataDir, "pki", "ca.crt")); err != nil || !bytes.Equal(authority, given) {
			t.Errorf("the authority is another one, %v", err)
		}
		for _, name := range []string{"taking", "taken"} {
			if _, err := os.Stat(filepath.Join(o.DataDir, name)); err == nil {
				t.Errorf("%s is still there", name)
			}
		}
		if err := stop(); err != nil {
			t.Error(err)
		}
	}
	t.Logf("%d had to begin anew, %d had it all", nothing, whole)
}

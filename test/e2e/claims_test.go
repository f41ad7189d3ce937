package e2e

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kemudi/kemudi/internal/trace"
	"github.com/kemudi/kemudi/test/wait"
)

// diary writes a line into its volume at each start, and prints all lines.
const diary = `
apiVersion: v1
kind: PersistentVolumeClaim
metadata: {name: diary}
spec: {accessModes: [ReadWriteOnce], resources: {requests: {storage: 1Gi}}}
---
apiVersion: apps/v1
kind: Deployment
metadata: {name: diary}
spec:
  strategy: {type: Recreate}
  selector: {matchLabels: {app: diary}}
  template:
    metadata: {labels: {app: diary}}
    spec:
      terminationGracePeriodSeconds: 0
      securityContext: {runAsUser: 1000, fsGroup: 2000}
      containers:
      - name: c
        image: kemudi.local/busybox:1
        command: [sh, -c, 'echo life >> /v/diary; echo $(wc -l < /v/diary) lives of group $(stat -c %g /v/diary); exec sleep 1d']
        volumeMounts: [{name: v, mountPath: /v}]
      - name: web
        image: kemudi.local/busybox:1
        command: [httpd, -f, -p, '8000', -h, /v]
        volumeMounts: [{name: v, mountPath: /v, readOnly: true}]
      volumes: [{name: v, persistentVolumeClaim: {claimName: diary}}]
---
apiVersion: v1
kind: Service
metadata: {name: diary}
spec: {selector: {app: diary}, ports: [{port: 80, targetPort: 8000}]}
`

// TestClaimsKeepTheirData has a Deployment's pod ended, and the server killed: what one of its
// containers wrote into its claim, and another serves, is there for the next one, until the claim is deleted.
func TestClaimsKeepTheirData(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	k := c.kubectl()
	k.wants(t, []string{"standard (default)", "local.kemudi.io", "WaitForFirstConsumer"}, "get", "storageclass")
	k.apply(t, diary)
	k.rolledOut(t, "diary")
	lives := func(n int) {
		t.Helper()
		wait.Until(t, func() error {
			return contains(k.try(t, "", "logs", "deployment/diary").all(), []string{fmt.Sprint(n, " lives of group 2000")})
		})
	}
	lives(1)
	trace.Proves(t, "POD-014", "WHAT-003")
	wait.Until(t, func() error {
		got := k.try(t, "", "exec", "deployment/diary", "-c", "c", "--", "wget", "-q", "-O", "-", "http://diary/diary").all()
		return contains(got, []string{"life"})
	})
	k.wants(t, []string{"Bound", "1Gi", "RWO", "standard"}, "get", "pvc", "diary")
	next := func() {
		t.Helper()
		pods := c.pods(t, "default", "app=diary")
		k.do(t, "delete", "pod", pods[0].Name)
		k.rolledOut(t, "diary")
	}
	next()
	lives(2)
	before := c.containers(t, "default", "app=diary")
	c.kill(syscall.SIGKILL)
	c.serve(t)
	c.await(t, "default", c.pods(t, "default", "app=diary")[0].Name, isReady)
	wantSame(t, before, c.containers(t, "default", "app=diary"))
	next()
	lives(3)

	// The claim goes when no pod uses it any more, and its data with it.
	dirs, err := filepath.Glob(filepath.Join(c.DataDir, "kubelet/volumes/pvc-*"))
	if err != nil || len(dirs) != 1 {
		t.Fatalf("directories of volumes: got %v, %v, want one", dirs, err)
	}
	k.do(t, "delete", "pvc", "diary", "--wait=false")
	k.wants(t, []string{"Terminating"}, "get", "pvc", "diary")
	k.do(t, "delete", "deployment", "diary")
	wait.Until(t, func() error {
		volumes, err := c.client.CoreV1().PersistentVolumes().List(t.Context(), metav1.ListOptions{})
		if err != nil || len(volumes.Items) > 0 {
			return fmt.Errorf("volumes: got %v, %w, want none", names(volumes.Items), err)
		}
		if _, err := os.Stat(dirs[0]); !os.IsNotExist(err) {
			return fmt.Errorf("directory %s: got %v, want none", dirs[0], err)
		}
		return nil
	})
}

// testSetWithClaims has a pod of a StatefulSet made anew: its successor mounts the volume of the same claim.
func testSetWithClaims(t *testing.T, c *cluster) {
	k := c.kubectl().in(c.namespace(t))
	k.apply(t, `
apiVersion: apps/v1
kind: StatefulSet
metadata: {name: diary}
spec:
  serviceName: none
  replicas: 2
  persistentVolumeClaimRetentionPolicy: {whenDeleted: Delete}
  selector: {matchLabels: {app: diary}}
  template:
    metadata: {labels: {app: diary}}
    spec:
      terminationGracePeriodSeconds: 0
      containers:
      - name: c
        image: kemudi.local/busybox:1
        command: [sh, -c, 'echo $(hostname) >> /v/diary; cat /v/diary; exec sleep 1d']
        volumeMounts: [{name: v, mountPath: /v}]
  volumeClaimTemplates:
  - metadata: {name: v}
    spec: {accessModes: [ReadWriteOnce], resources: {requests: {storage: 1Gi}}}
`)
	says := func(pod, want string) {
		t.Helper()
		wait.Until(t, func() error {
			if o := k.try(t, "", "logs", pod); o.code != 0 || o.stdout != want {
				return fmt.Errorf("log of %s: got %+v, want %q", pod, o, want)
			}
			return nil
		})
	}
	says("diary-0", "diary-0\n")
	says("diary-1", "diary-1\n")
	k.do(t, "delete", "pod", "diary-1")
	trace.Proves(t, "STS-028")
	says("diary-1", "diary-1\ndiary-1\n")
	k.do(t, "delete", "statefulset", "diary")
	k.do(t, "wait", "--for=delete", "pvc", "--all", patient)
	c.wantNothing(t, k.namespace)
}

func names(volumes []corev1.PersistentVolume) string {
	var list []string
	for i := range volumes {
		list = append(list, volumes[i].Name+" "+string(volumes[i].Status.Phase))
	}
	return strings.Join(list, ", ")
}

// testPersistentVolumes mounts volumes that people have made, and says what is
// wrong with those that cannot be mounted.
func testPersistentVolumes(t *testing.T, c *cluster) {
	ns := c.namespace(t)
	k := c.kubectl().in(ns)
	host := filepath.Join(c.Dir, "persistent")
	if err := os.MkdirAll(host, 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(host+"/file", []byte("from the host"), 0o644); err != nil {
		t.Fatal(err)
	}
	// A driver whose volumes need not be attached, and that the node does not have.
	k.apply(t, "apiVersion: storage.k8s.io/v1\nkind: CSIDriver\nmetadata: {name: csi.example.com}\nspec: {attachRequired: false}\n")
	t.Cleanup(func() {
		if err := c.client.StorageV1().CSIDrivers().Delete(context.Background(), "csi.example.com", metav1.DeleteOptions{}); err != nil {
			t.Error(err)
		}
	})
	for _, tc := range []struct{ name, source, want, failed string }{
		{"path", "hostPath: {path: " + host + ", type: Directory}", `content of file "/v/file": from the host`, ""},
		{"local", "local: {path: " + host + "}", `content of file "/v/file": from the host`, ""},
		{"missing", "local: {path: " + host + "/missing}", "", `MountVolume.NewMounter initialization failed for volume "` + ns + `-missing" : path "` + host + `/missing" does not exist`},
		{"driver", "csi: {driver: csi.example.com, volumeHandle: x}", "", `MountVolume.MountDevice failed for volume "` + ns + `-driver" : kubernetes.io/csi: attacher.MountDevice failed to create newCsiDriverClient: driver name csi.example.com not found in the list of registered CSI drivers`},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			affinity := ""
			if strings.HasPrefix(tc.source, "local") {
				affinity = "nodeAffinity: {required: {nodeSelectorTerms: [{matchExpressions: [{key: kubernetes.io/os, operator: In, values: [linux]}]}]}}, "
			}
			volume := ns + "-" + tc.name
			k.apply(t, fmt.Sprintf(`
apiVersion: v1
kind: PersistentVolume
metadata: {name: %[1]s}
spec: {capacity: {storage: 1Gi}, accessModes: [ReadWriteOnce], storageClassName: %[1]s, %[2]s%[3]s}
---
apiVersion: v1
kind: PersistentVolumeClaim
metadata: {name: %[4]s}
spec: {accessModes: [ReadWriteOnce], storageClassName: %[1]s, resources: {requests: {storage: 1Gi}}}
`, volume, affinity, tc.source, tc.name))
			pod := fmt.Sprintf(`
metadata: {name: %[1]s}
spec:
  restartPolicy: Never
  containers:
  - {name: c, image: kemudi.local/agnhost:1, args: [mounttest, --file_content=/v/file], volumeMounts: [{name: v, mountPath: /v}]}
  volumes: [{name: v, persistentVolumeClaim: {claimName: %[1]s, readOnly: true}}]
`, tc.name)
			if tc.failed == "" {
				_, got := c.finish(t, ns, pod)
				wantLines(t, got, tc.want)
				return
			}
			c.create(t, ns, pod)
			trace.Proves(t, "VOL-K06")
			c.awaitEvent(t, ns, tc.name, "FailedMount", tc.failed)
			k.do(t, "delete", "pod", tc.name) // which waits for nothing of the volume
		})
	}
}

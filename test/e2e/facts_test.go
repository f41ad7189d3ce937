package e2e

import (
	"fmt"
	"regexp"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kemudi/kemudi/internal/trace"
	"github.com/kemudi/kemudi/test/wait"
)

// fact is a line that a container must print, and what it proves.
type fact struct{ proves, want string }

// wantFacts checks each line as a test of its own.
func wantFacts(t *testing.T, got string, facts []fact) {
	t.Helper()
	for _, f := range facts {
		name := strings.Fields(f.proves + " " + f.want)[0]
		t.Run(name, func(t *testing.T) {
			trace.Proves(t, strings.Fields(f.proves)...)
			wantLines(t, got, f.want)
		})
	}
}

const factSources = `
apiVersion: v1
kind: ConfigMap
metadata: {name: config}
data: {data-1: value-1, data-2: value-2}
binaryData: {bin: 3q2+7w==}
---
apiVersion: v1
kind: Secret
metadata: {name: secret}
stringData: {data-1: secret-1}
`

// show prints path, mode, owner and content of files, one line each.
const show = `show() { for f in "$@"; do echo "$f $(stat -L -c "%A %u:%g" $f) $(cat $f)"; done; }; `

// factsPod mounts a config map and a secret in every way, and prints what it sees.
const factsPod = `
metadata: {name: facts, labels: {color: blue}, annotations: {note: "a \"b\""}}
spec:
  restartPolicy: Never
  volumes:
  - {name: c0, configMap: {name: config}}
  - {name: c1, configMap: {name: config}}
  - {name: c2, configMap: {name: config, items: [{key: data-2, path: path/to/data-2}]}}
  - {name: c3, configMap: {name: config, items: [{key: data-2, path: path/to/data-2, mode: 0400}]}}
  - {name: c4, configMap: {name: config, defaultMode: 0400}}
  - {name: s0, secret: {secretName: secret}}
  - {name: s1, secret: {secretName: secret, items: [{key: data-1, path: new}]}}
  - {name: s2, secret: {secretName: secret, items: [{key: data-1, path: new, mode: 0400}]}}
  - {name: s4, secret: {secretName: secret, defaultMode: 0400}}
  - {name: pc0, projected: {sources: [{configMap: {name: config}}]}}
  - {name: pc1, projected: {sources: [{configMap: {name: config}}]}}
  - {name: pc2, projected: {sources: [{configMap: {name: config, items: [{key: data-2, path: p/d}]}}]}}
  - {name: pc3, projected: {sources: [{configMap: {name: config, items: [{key: data-2, path: p/d, mode: 0400}]}}]}}
  - {name: pc4, projected: {defaultMode: 0400, sources: [{configMap: {name: config}}]}}
  - {name: ps0, projected: {sources: [{secret: {name: secret}}]}}
  - {name: ps1, projected: {sources: [{secret: {name: secret, items: [{key: data-1, path: new}]}}]}}
  - {name: ps2, projected: {sources: [{secret: {name: secret, items: [{key: data-1, path: new, mode: 0400}]}}]}}
  - {name: ps4, projected: {defaultMode: 0400, sources: [{secret: {name: secret}}]}}
  - name: all
    projected: {sources: [{configMap: {name: config, items: [{key: data-1, path: c}]}}, {secret: {name: secret, items: [{key: data-1, path: s}]}}, {downwardAPI: {items: [{path: pod, fieldRef: {fieldPath: metadata.name}}, {path: cpu, resourceFieldRef: {containerName: c, resource: limits.cpu}}]}}]}
  - name: d
    downwardAPI:
      defaultMode: 0400
      items:
      - {path: name, fieldRef: {fieldPath: metadata.name}}
      - {path: labels, fieldRef: {fieldPath: metadata.labels}, mode: 0444}
      - {path: annotations, fieldRef: {fieldPath: metadata.annotations}}
      - {path: cpu-limit, resourceFieldRef: {containerName: c, resource: limits.cpu}}
      - {path: cpu-request, resourceFieldRef: {containerName: c, resource: requests.cpu}}
      - {path: memory-limit, resourceFieldRef: {containerName: c, resource: limits.memory}}
      - {path: memory-request, resourceFieldRef: {containerName: c, resource: requests.memory}}
      - {path: free-memory, resourceFieldRef: {containerName: free, resource: limits.memory}}
      - {path: free-cpu, resourceFieldRef: {containerName: free, resource: limits.cpu, divisor: 1m}}
  - name: pd
    projected:
      sources:
      - downwardAPI:
          items:
          - {path: name, fieldRef: {fieldPath: metadata.name}, mode: 0400}
          - {path: cpu-limit, resourceFieldRef: {containerName: c, resource: limits.cpu}}
          - {path: cpu-request, resourceFieldRef: {containerName: c, resource: requests.cpu, divisor: 1m}}
          - {path: memory-limit, resourceFieldRef: {containerName: c, resource: limits.memory, divisor: 1Mi}}
          - {path: memory-request, resourceFieldRef: {containerName: c, resource: requests.memory}}
          - {path: free-cpu, resourceFieldRef: {containerName: free, resource: limits.cpu}}
  - {name: e, emptyDir: {}}
  - {name: m, emptyDir: {medium: Memory}}
  containers:
  - name: c
    image: kemudi.local/agnhost:1
    resources: {requests: {cpu: 250m, memory: 32Mi}, limits: {cpu: 1250m, memory: 64Mi}}
    command: [sh, -c, '` + show + `
      show /c0/data-1 /c1/data-1 /c2/path/to/data-2 /c3/path/to/data-2 /c4/data-1 /s0/data-1 /s1/new /s2/new /s4/data-1;
      show /pc0/data-1 /pc1/data-1 /pc2/p/d /pc3/p/d /pc4/data-1 /ps0/data-1 /ps1/new /ps2/new /ps4/data-1 /all/c /all/s /all/pod /all/cpu;
      show /d/name /d/labels /d/annotations /d/cpu-limit /d/cpu-request /d/memory-limit /d/memory-request /d/free-memory /d/free-cpu;
      show /pd/name /pd/cpu-limit /pd/cpu-request /pd/memory-limit /pd/memory-request /pd/free-cpu;
      show /sub/config /sub/secret /sub/down /sub/projected /etc/nsswitch.conf;
      ls /c2 /s1 /s0; od -An -tx1 /c0/bin; for v in /e /m; do for p in 0644 0666 0777; do /agnhost mounttest --new_file_$p=$v/$p --file_perm=$v/$p --fs_type=$v; done; done; /agnhost mounttest --file_perm=/e']
    volumeMounts:
    - {name: c0, mountPath: /c0}
    - {name: c1, mountPath: /c1}
    - {name: c2, mountPath: /c2}
    - {name: c3, mountPath: /c3}
    - {name: c4, mountPath: /c4}
    - {name: s0, mountPath: /s0}
    - {name: s1, mountPath: /s1}
    - {name: s2, mountPath: /s2}
    - {name: s4, mountPath: /s4}
    - {name: pc0, mountPath: /pc0}
    - {name: pc1, mountPath: /pc1}
    - {name: pc2, mountPath: /pc2}
    - {name: pc3, mountPath: /pc3}
    - {name: pc4, mountPath: /pc4}
    - {name: ps0, mountPath: /ps0}
    - {name: ps1, mountPath: /ps1}
    - {name: ps2, mountPath: /ps2}
    - {name: ps4, mountPath: /ps4}
    - {name: all, mountPath: /all}
    - {name: d, mountPath: /d}
    - {name: pd, mountPath: /pd}
    - {name: e, mountPath: /e}
    - {name: m, mountPath: /m}
    - {name: c0, mountPath: /sub/config, subPath: data-1}
    - {name: s0, mountPath: /sub/secret, subPath: data-1}
    - {name: d, mountPath: /sub/down, subPath: name}
    - {name: all, mountPath: /sub/projected, subPath: c}
    - {name: c0, mountPath: /etc/nsswitch.conf, subPath: data-2}
  - {name: free, image: kemudi.local/busybox:1, command: ["true"]}
`

// testVolumeFacts mounts every way of putting objects into files into one pod
// and looks at modes, owners and content.
func testVolumeFacts(t *testing.T, c *cluster) {
	ns := c.namespace(t)
	other := ns + "-2"
	k := c.kubectl()
	k.do(t, "create", "namespace", other)
	t.Cleanup(func() { c.kubectl().try(t, "", "delete", "namespace", other, "--wait=false") })
	k.in(other).do(t, "create", "secret", "generic", "secret", "--from-literal=data-1=foreign", "--from-literal=foreign=x")
	k.in(ns).apply(t, factSources)
	pod, got := c.finish(t, ns, factsPod)
	node, err := c.client.CoreV1().Nodes().Get(t.Context(), pod.Spec.NodeName, metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	wantFacts(t, got, volumeFacts(node.Status.Allocatable))
	if strings.Contains(got, "foreign") {
		t.Errorf("a secret of another namespace shows: %s", got)
	}
	if pod.Status.Phase != corev1.PodSucceeded {
		t.Errorf("phase: got %s, %s", pod.Status.Phase, states(pod))
	}
}

// volumeFacts are what the pod must see. Without limits of its own, a container
// has those of the node.
func volumeFacts(node corev1.ResourceList) []fact {
	const all, own = " -rw-r--r-- 0:0 ", " -r-------- 0:0 "
	return []fact{
		{"C-366 CMV-002", "/c1/data-1" + all + "value-1"},
		{"C-363 CMV-004 CMV-K02", "/c2/path/to/data-2" + all + "value-2"},
		{"C-364", "/c3/path/to/data-2" + own + "value-2"},
		{"C-362", "/c4/data-1" + own + "value-1"},
		{"C-428 C-429 C-396", "/s0/data-1" + all + "secret-1"},
		{"C-434", "/s1/new" + all + "secret-1"},
		{"C-433", "/s2/new" + own + "secret-1"},
		{"C-431", "/s4/data-1" + own + "secret-1"},
		{"C-401", "/pc0/data-1" + all + "value-1"},
		{"C-407", "/pc1/data-1" + all + "value-1"},
		{"C-404", "/pc2/p/d" + all + "value-2"},
		{"C-405", "/pc3/p/d" + own + "value-2"},
		{"C-403", "/pc4/data-1" + own + "value-1"},
		{"C-426", "/ps0/data-1" + all + "secret-1"},
		{"C-424", "/ps1/new" + all + "secret-1"},
		{"C-425", "/ps2/new" + own + "secret-1"},
		{"C-423", "/ps4/data-1" + own + "secret-1"},
		{"C-399", "/all/c" + all + "value-1"},
		{"C-399", "/all/s" + all + "secret-1"},
		{"C-399", "/all/pod" + all + "facts"},
		{"C-399", "/all/cpu" + all + "2"},
		{"C-375 C-376", "/d/name" + own + "facts"},
		{"C-377", `/d/labels -r--r--r-- 0:0 color="blue"`},
		{"DAPI-K02", "/d/annotations" + own + `note="a \"b\""`},
		{"C-369", "/d/cpu-limit" + own + "2"},
		{"C-370", "/d/cpu-request" + own + "1"},
		{"C-371", "/d/memory-limit" + own + "67108864"},
		{"C-372", "/d/memory-request" + own + "33554432"},
		{"C-374", "/d/free-memory" + own + fmt.Sprint(node.Memory().Value())},
		{"DAPI-K02", "/d/free-cpu" + own + fmt.Sprint(node.Cpu().MilliValue())},
		{"C-415 C-417", "/pd/name" + own + "facts"},
		{"C-409", "/pd/cpu-limit" + all + "2"},
		{"C-410", "/pd/cpu-request" + all + "250"},
		{"C-411", "/pd/memory-limit" + all + "64"},
		{"C-412", "/pd/memory-request" + all + "33554432"},
		{"C-413", "/pd/free-cpu" + all + fmt.Sprint(node.Cpu().Value())},
		{"C-437", "/sub/config" + all + "value-1"},
		{"C-441", "/sub/secret" + all + "secret-1"},
		{"C-439", "/sub/down" + own + "facts"},
		{"C-440", "/sub/projected" + all + "value-1"},
		{"C-438", "/etc/nsswitch.conf" + all + "value-2"},
		{"CMV-K02", " de ad be ef"},
		{"C-387", `perms of file "/e/0644": -rw-r--r--`},
		{"C-389", `perms of file "/e/0666": -rw-rw-rw-`},
		{"C-391", `perms of file "/e/0777": -rwxrwxrwx`},
		{"C-388", `perms of file "/m/0644": -rw-r--r--`},
		{"C-390", `perms of file "/m/0666": -rw-rw-rw-`},
		{"C-392", `perms of file "/m/0777": -rwxrwxrwx`},
		{"C-392 EMPTY-009", `mount type of "/m": tmpfs`},
		{"C-393", `perms of file "/e": -rwxrwxrwx`},
	}
}

// testVolumeOwners looks at volumes as somebody who is not root, with and
// without a group of the pod.
func testVolumeOwners(t *testing.T, c *cluster) {
	ns := c.namespace(t)
	c.kubectl().in(ns).apply(t, factSources)
	const volumes = `
  volumes:
  - {name: c0, configMap: {name: config}}
  - {name: c2, configMap: {name: config, items: [{key: data-2, path: p/d}]}}
  - {name: s0, secret: {secretName: secret, defaultMode: 0440}}
  - {name: pc, projected: {sources: [{configMap: {name: config, items: [{key: data-2, path: p/d}]}}]}}
  - {name: ps, projected: {defaultMode: 0440, sources: [{secret: {name: secret}}]}}
  - {name: t, projected: {sources: [{serviceAccountToken: {path: token, audience: vault, expirationSeconds: 600}}]}}
  - {name: e, emptyDir: {}}
  - {name: m, emptyDir: {medium: Memory}}
  containers:
  - name: c
    image: kemudi.local/agnhost:1
    volumeMounts: [{name: c0, mountPath: /c0}, {name: c2, mountPath: /c2}, {name: s0, mountPath: /s0}, {name: pc, mountPath: /pc}, {name: ps, mountPath: /ps}, {name: t, mountPath: /t}, {name: e, mountPath: /e}, {name: m, mountPath: /m}]
`
	const mode = `mode() { for f in "$@"; do echo "$f $(stat -L -c "%A %u:%g" $f)"; done; }; `
	t.Run("user", func(t *testing.T) {
		t.Parallel()
		_, got := c.finish(t, ns, "metadata: {name: user}\nspec:\n  restartPolicy: Never\n  securityContext: {runAsUser: 1001}"+volumes+`
    command: [sh, -c, '`+show+mode+` show /c0/data-1 /c2/p/d /pc/p/d; mode /t/token;
      [ -s /t/token ] && [ -s /var/run/secrets/kubernetes.io/serviceaccount/token ] && echo tokens; cut -d. -f2 /t/token | tr _- /+ | base64 -d 2>/dev/null;
      for v in /e /m; do for p in 0644 0666 0777; do /agnhost mounttest --new_file_$p=$v/$p --file_perm=$v/$p; done; done']
`)
		wantFacts(t, got, []fact{
			{"C-361", "/c0/data-1 -rw-r--r-- 0:0 value-1"},
			{"C-365", "/c2/p/d -rw-r--r-- 0:0 value-2"},
			{"C-406", "/pc/p/d -rw-r--r-- 0:0 value-2"},
			{"C-381", `perms of file "/e/0644": -rw-r--r--`},
			{"C-383", `perms of file "/e/0666": -rw-rw-rw-`},
			{"C-384", `perms of file "/m/0666": -rw-rw-rw-`},
			{"C-386", `perms of file "/m/0777": -rwxrwxrwx`},
			{"C-168", "/t/token -rw------- 1001:0"},
			{"C-167", "tokens"},
		})
		for _, want := range []string{`"aud":["vault"]`, `"sub":"system:serviceaccount:` + ns + `:default`, `"pod":{"name":"user"`} {
			if !strings.Contains(got, want) {
				t.Errorf("token: got %s, want %s", got, want)
			}
		}
	})
	t.Run("group", func(t *testing.T) {
		t.Parallel()
		_, got := c.finish(t, ns, "metadata: {name: group}\nspec:\n  restartPolicy: Never\n  securityContext: {runAsUser: 1000, fsGroup: 1001}"+volumes+`
    command: [sh, -c, '`+show+mode+` show /s0/data-1 /ps/data-1; mode /t/token /e /m; touch /e/f /m/f; mode /e/f /m/f']
`)
		wantFacts(t, got, []fact{
			{"C-430", "/s0/data-1 -r--r----- 0:1001 secret-1"},
			{"C-422", "/ps/data-1 -r--r----- 0:1001 secret-1"},
			{"C-168", "/t/token -rw-r----- 1000:1001"},
			{"EMPTY-K02", "/e drwxrwsrwx 0:1001"},
			{"EMPTY-K02", "/m drwxrwsrwx 0:1001"},
			{"EMPTY-K02", "/e/f -rw-r--r-- 1000:1001"},
		})
	})
}

// testFollowedVolumes changes, makes and removes what running containers have mounted.
func testFollowedVolumes(t *testing.T, c *cluster) {
	k := c.kubectl().in(c.namespace(t))
	k.apply(t, `
apiVersion: v1
kind: ConfigMap
metadata: {name: changes}
data: {k: value-1}
---
apiVersion: v1
kind: ConfigMap
metadata: {name: goes}
data: {k: value-1}
---
apiVersion: v1
kind: Secret
metadata: {name: changes}
stringData: {k: value-1}
---
apiVersion: v1
kind: Secret
metadata: {name: goes}
stringData: {k: value-1}
`)
	var mounts, volumes []string
	for _, name := range []string{"changes", "goes", "comes"} {
		for volume, source := range map[string]string{
			"c": "configMap: {name: %s, optional: true}", "s": "secret: {secretName: %s, optional: true}",
			"pc": "projected: {sources: [{configMap: {name: %s, optional: true}}]}", "ps": "projected: {sources: [{secret: {name: %s, optional: true}}]}",
		} {
			volumes = append(volumes, fmt.Sprintf("{name: %s-%s, "+source+"}", volume, name, name))
			mounts = append(mounts, fmt.Sprintf("{name: %s-%s, mountPath: /%s/%s}", volume, name, volume, name))
		}
	}
	c.create(t, k.namespace, `
metadata: {name: follower, labels: {color: blue}, annotations: {note: one}}
spec:
  terminationGracePeriodSeconds: 0
  volumes: [`+strings.Join(volumes, ", ")+`, {name: d, downwardAPI: {items: [{path: l, fieldRef: {fieldPath: metadata.labels}}, {path: a, fieldRef: {fieldPath: metadata.annotations}}]}},
    {name: pd, projected: {sources: [{downwardAPI: {items: [{path: l, fieldRef: {fieldPath: metadata.labels}}, {path: a, fieldRef: {fieldPath: metadata.annotations}}]}}]}}]
  containers:
  - {name: c, image: kemudi.local/busybox:1, command: [sleep, '1000'], volumeMounts: [`+strings.Join(mounts, ", ")+`, {name: d, mountPath: /d}, {name: pd, mountPath: /pd}, {name: d, mountPath: /fixed, subPath: a}]}
`)
	c.await(t, k.namespace, "follower", isReady)
	sees := func(changes, goes, comes, color, note string) (got string) {
		t.Helper()
		want := ""
		for _, v := range []string{"c", "s", "pc", "ps"} {
			for _, f := range []struct{ name, value string }{{"changes", changes}, {"goes", goes}, {"comes", comes}} {
				want += fmt.Sprintf("/%s/%s/k=%s\n", v, f.name, f.value)
			}
		}
		for _, v := range []string{"d", "pd"} {
			want += fmt.Sprintf("/%s/l=color=%q\n/%s/a=note=%q\n", v, color, v, note)
		}
		want += "/fixed=note=\"one\"\n"
		wait.Until(t, func() error {
			const script = `for v in c s pc ps; do for n in changes goes comes; do echo "/$v/$n/k=$(cat /$v/$n/k 2>/dev/null)"; done; done; for v in d pd; do echo "/$v/l=$(cat /$v/l)"; echo "/$v/a=$(grep note /$v/a)"; done; echo "/fixed=$(grep note /fixed)"`
			if got = k.do(t, "exec", "follower", "--", "sh", "-c", script); got != want {
				return fmt.Errorf("got\n%s\nwant\n%s", got, want)
			}
			return nil
		})
		return got
	}
	sees("value-1", "value-1", "", "blue", "one")
	for _, kind := range []string{"configmap", "secret"} {
		k.do(t, "delete", kind, "goes")
	}
	k.do(t, "create", "configmap", "comes", "--from-literal=k=value-3")
	k.do(t, "create", "secret", "generic", "comes", "--from-literal=k=value-3")
	k.do(t, "patch", "configmap", "changes", "-p", `{"data":{"k":"value-2"}}`)
	k.do(t, "patch", "secret", "changes", "-p", `{"stringData":{"k":"value-2"}}`)
	k.do(t, "annotate", "pod", "follower", "note=two", "--overwrite")
	k.do(t, "label", "pod", "follower", "color=green", "--overwrite")
	wantFacts(t, sees("value-2", "", "value-3", "green", "two"), []fact{
		{"C-359", "/c/changes/k=value-2"},
		{"C-359", "/c/goes/k="},
		{"C-359", "/c/comes/k=value-3"},
		{"C-427", "/s/changes/k=value-2"},
		{"C-427", "/s/goes/k="},
		{"C-427", "/s/comes/k=value-3"},
		{"C-400 C-408", "/pc/changes/k=value-2"},
		{"C-400", "/pc/goes/k="},
		{"C-400", "/pc/comes/k=value-3"},
		{"C-420", "/ps/changes/k=value-2"},
		{"C-420", "/ps/goes/k="},
		{"C-420", "/ps/comes/k=value-3"},
		{"C-379", `/d/l=color="green"`},
		{"C-378", `/d/a=note="two"`},
		{"C-418", `/pd/a=note="two"`},
		{"DAPI-003", `/fixed=note="one"`},
	})
	trace.Proves(t, "CMV-K03/layout")
	layout := regexp.MustCompile(`^\.\.data/k\n(\.\.\d{4}_\d\d_\d\d_\d\d_\d\d_\d\d\.\d+)\n$`)
	if got := k.do(t, "exec", "follower", "--", "sh", "-c", "readlink /c/changes/k; readlink /c/changes/..data"); !layout.MatchString(got) {
		t.Errorf("links of a volume: got %q, want %s", got, layout)
	}
}

// testManyConfigMaps mounts 50 config maps into each of five pods.
func testManyConfigMaps(t *testing.T, c *cluster) {
	trace.Proves(t, "C-395")
	k := c.kubectl().in(c.namespace(t))
	var mounts, volumes []string
	for i := range 50 {
		cm := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprintf("config-%d", i)}, Data: map[string]string{"k": fmt.Sprint(i)}}
		if _, err := c.client.CoreV1().ConfigMaps(k.namespace).Create(t.Context(), cm, metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
		volumes = append(volumes, fmt.Sprintf("{name: v%d, configMap: {name: config-%d}}", i, i))
		mounts = append(mounts, fmt.Sprintf("{name: v%d, mountPath: /v/%d}", i, i))
	}
	k.apply(t, `
apiVersion: apps/v1
kind: ReplicaSet
metadata: {name: many}
spec:
  replicas: 5
  selector: {matchLabels: {app: many}}
  template:
    metadata: {labels: {app: many}}
    spec:
      terminationGracePeriodSeconds: 0
      volumes: [`+strings.Join(volumes, ", ")+`]
      containers: [{name: c, image: kemudi.local/agnhost:1, volumeMounts: [`+strings.Join(mounts, ", ")+`]}]
`)
	wait.Until(t, func() error {
		ready := 0
		for _, pod := range c.pods(t, k.namespace, "app=many") {
			if isReady(&pod) == nil {
				ready++
			}
		}
		if ready != 5 {
			return fmt.Errorf("%d of 5 pods are ready", ready)
		}
		return nil
	})
	if got := k.do(t, "exec", c.pods(t, k.namespace, "app=many")[0].Name, "--", "sh", "-c", "cat /v/*/k | wc -c"); strings.TrimSpace(got) != "90" {
		t.Errorf("got %s bytes from all volumes, want 90", got)
	}
}

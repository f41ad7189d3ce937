package e2e

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"

	"github.com/kemudi/kemudi/internal/trace"
	"github.com/kemudi/kemudi/test/wait"
)

const volumeSources = `
apiVersion: v1
kind: ConfigMap
metadata: {name: config}
data: {data-1: value-1, data-2: value-2, log_level: INFO}
binaryData: {bin: 3q2+7w==}
`

// testVolumes mounts what pods get from the API and from the node, and looks at
// it with the tester that prints modes, owners and content.
func testVolumes(t *testing.T, c *cluster) {
	ns := c.namespace(t)
	c.kubectl().in(ns).apply(t, volumeSources+`---
apiVersion: v1
kind: Secret
metadata: {name: secret}
stringData: {data-1: secret-1}
`)
	host := filepath.Join(c.Dir, "host")
	if err := os.MkdirAll(host+"/sub", 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(host+"/file", []byte("from the host"), 0o644); err != nil {
		t.Fatal(err)
	}
	for _, tc := range []struct {
		name, volume, mount, pod, args string
		proves                         []string
		want                           []string
	}{
		{"config", "configMap: {name: config}", "", "", "--file_content=/v/data-1,--file_mode=/v/data-1", []string{"C-361", "CMV-002", "CMV-006"}, []string{`content of file "/v/data-1": value-1`, `mode of file "/v/data-1": -rw-r--r--`}},
		{"config-binary", "configMap: {name: config}", "", "", "--file_content=/v/bin", nil, []string{"content of file \"/v/bin\": \xde\xad\xbe\xef"}},
		{"config-0400", "configMap: {name: config, defaultMode: 0400}", "", "", "--file_content=/v/data-1,--file_mode=/v/data-1", []string{"C-362"}, []string{`mode of file "/v/data-1": -r--------`}},
		{"config-mapped", "configMap: {name: config, items: [{key: data-2, path: a/b, mode: 0400}]}", "", "", "--file_content=/v/a/b,--file_mode=/v/a/b", []string{"C-363", "C-364"}, []string{`content of file "/v/a/b": value-2`, `mode of file "/v/a/b": -r--------`}},
		{"config-user", "configMap: {name: config, items: [{key: data-1, path: p}]}", "", "securityContext: {runAsUser: 1000}", "--file_content=/v/p,--file_mode=/v/p", []string{"C-365"}, []string{`content of file "/v/p": value-1`, `mode of file "/v/p": -rw-r--r--`}},
		{"secret", "secret: {secretName: secret}", "", "", "--fs_type=/v,--file_content=/v/data-1,--file_mode=/v/data-1", []string{"C-429", "VOL-008", "VOL-009", "VOL-012"}, []string{`mount type of "/v": tmpfs`, `content of file "/v/data-1": secret-1`, `mode of file "/v/data-1": -rw-r--r--`}},
		{"secret-group", "secret: {secretName: secret, defaultMode: 0440}", "", "securityContext: {runAsUser: 1000, fsGroup: 1001}", "--file_content=/v/data-1,--file_mode=/v/data-1,--file_owner=/v/data-1", []string{"C-430"}, []string{`content of file "/v/data-1": secret-1`, `mode of file "/v/data-1": -r--r-----`, `owner GID of "/v/data-1": 1001`}},
		{"secret-mapped-0400", "secret: {secretName: secret, items: [{key: data-1, path: x, mode: 0400}]}", "", "", "--file_mode=/v/x", []string{"C-433"}, []string{`mode of file "/v/x": -r--------`}},
		{"downward", "downwardAPI: {items: [{path: name, fieldRef: {fieldPath: metadata.name}}, {path: limit, resourceFieldRef: {containerName: c, resource: limits.memory}}]}", "", "", "--file_content=/v/name", []string{"C-375", "DAPI-001", "DAPI-002"}, []string{`content of file "/v/name": downward`}},
		{"downward-labels", "downwardAPI: {defaultMode: 0400, items: [{path: labels, fieldRef: {fieldPath: metadata.labels}}]}", "", "", "--file_content=/v/labels,--file_mode=/v/labels", []string{"C-376", "DAPI-K02"}, []string{`content of file "/v/labels": color="blue"`, `mode of file "/v/labels": -r--------`}},
		{"projected", "projected: {sources: [{configMap: {name: config, items: [{key: data-1, path: c}]}}, {secret: {name: secret, items: [{key: data-1, path: s}]}}, {downwardAPI: {items: [{path: nn, fieldRef: {fieldPath: metadata.name}}]}}]}", "", "", "--file_content=/v/s", []string{"C-399"}, []string{`content of file "/v/s": secret-1`}},
		{"configmap-pod", "configMap: {name: config, items: [{key: log_level, path: log_level}]}", "", "", "--file_content=/v/log_level", []string{"CMV-005"}, []string{`content of file "/v/log_level": INFO`}},
		{"empty", "emptyDir: {}", "", "", "--file_perm=/v", []string{"C-393", "EMPTY-008"}, []string{`perms of file "/v": -rwxrwxrwx`}},
		{"empty-0644", "emptyDir: {}", "", "", "--new_file_0644=/v/f,--file_perm=/v/f", []string{"C-387"}, []string{`perms of file "/v/f": -rw-r--r--`}},
		{"empty-user", "emptyDir: {}", "", "securityContext: {runAsUser: 1001}", "--new_file_0666=/v/f,--file_perm=/v/f", []string{"C-383"}, []string{`perms of file "/v/f": -rw-rw-rw-`}},
		{"memory", "emptyDir: {medium: Memory}", "", "", "--fs_type=/v,--new_file_0777=/v/f,--file_perm=/v/f", []string{"C-392", "VOL-009"}, []string{`mount type of "/v": tmpfs`, `perms of file "/v/f": -rwxrwxrwx`}},
		{"memory-user", "emptyDir: {medium: Memory}", "", "securityContext: {runAsUser: 1001}", "--new_file_0666=/v/f,--file_perm=/v/f", []string{"C-384"}, []string{`perms of file "/v/f": -rw-rw-rw-`}},
		{"host", "hostPath: {path: " + host + ", type: Directory}", "", "", "--file_content=/v/file", []string{"VOL-009"}, []string{`content of file "/v/file": from the host`}},
		{"host-new", "hostPath: {path: " + host + "/new, type: DirectoryOrCreate}", "", "", "--file_mode=/v", nil, []string{`mode of file "/v": drwxr-xr-x`}},
		{"sub-path", "configMap: {name: config}", "subPath: data-1", "", "--file_content=/v", []string{"C-437"}, []string{`content of file "/v": value-1`}},
		{"sub-path-secret", "secret: {secretName: secret}", "subPath: data-1", "", "--file_content=/v", []string{"C-441"}, []string{`content of file "/v": secret-1`}},
		{"sub-path-expanded", "emptyDir: {}", "subPathExpr: $(NAME)/x", "", "--new_file_0644=/v/f,--file_perm=/v/f", []string{"C-333"}, []string{`perms of file "/v/f": -rw-r--r--`}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			if tc.proves != nil {
				trace.Proves(t, tc.proves...)
			}
			mount := "name: v, mountPath: /v"
			if tc.mount != "" {
				mount += ", " + tc.mount
			}
			pod, got := c.finish(t, ns, fmt.Sprintf(`
metadata: {name: %s, labels: {color: blue}}
spec:
  restartPolicy: Never
  %s
  containers:
  - {name: c, image: kemudi.local/agnhost:1, args: [mounttest, %s], env: [{name: NAME, value: expanded}], volumeMounts: [{%s}]}
  volumes:
  - {name: v, %s}
`, tc.name, tc.pod, strings.ReplaceAll(tc.args, ",", ", "), mount, tc.volume))
			if pod.Status.Phase != corev1.PodSucceeded {
				t.Errorf("phase: got %s, want Succeeded", pod.Status.Phase)
			}
			wantLines(t, got, tc.want...)
		})
	}
}

// testSharedVolume lets two containers of a pod see one directory, at different
// places, over a restart.
func testSharedVolume(t *testing.T, c *cluster) {
	ns := c.namespace(t)
	_, got := c.finish(t, ns, `
metadata: {name: shared}
spec:
  restartPolicy: OnFailure
  containers:
  - name: a
    image: kemudi.local/busybox:1
    command: [sh, -c, 'until [ -e /a/b ]; do sleep 0.1; done; [ -e /own ] && echo kept of its own; touch /own; echo x >> /a/lives; [ $(wc -l < /a/lives) = 2 ] || exit 1; echo kept in the volume; cat /a/b; echo from a > /a/a; wget -q -O - http://127.0.0.1:8000/file; touch /a/done']
    volumeMounts: [{name: v, mountPath: /a}]
  - name: b
    image: kemudi.local/busybox:1
    command: [sh, -c, 'ls /a 2>&1; echo web > /www/file; cat /b/n/file; httpd -p 8000 -h /www; echo from b > /b/new; mv /b/new /b/b; until [ -e /b/done ]; do sleep 0.1; done; cat /b/a']
    volumeMounts: [{name: w, mountPath: /b/n}, {name: v, mountPath: /b}, {name: w, mountPath: /www}]
  volumes: [{name: v, emptyDir: {}}, {name: w, emptyDir: {}}]
`)
	trace.Proves(t, "VOL-001", "VOL-002")
	if strings.Contains(got, "kept of its own") {
		t.Errorf("second life of the first container: got %q, want no file of the first life", got)
	}
	trace.Proves(t, "EMPTY-006", "ENV-001", "POD-019", "PODO-013", "VOL-005")
	wantLines(t, got, "kept in the volume")
	trace.Proves(t, "EMPTY-004/different-paths", "VOL-003", "VOL-015/different-paths")
	wantLines(t, got, "from b")
	trace.Proves(t, "CONN-004")
	wantLines(t, got, "web")
	trace.Proves(t, "EMPTY-003")
	wantLines(t, c.logs(t, ns, "shared", corev1.PodLogOptions{Container: "b"}), "from a")
	trace.Proves(t, "VOL-K05")
	wantLines(t, c.logs(t, ns, "shared", corev1.PodLogOptions{Container: "b"}), "web")
	trace.Proves(t, "VOL-014")
	if got := c.logs(t, ns, "shared", corev1.PodLogOptions{Container: "b"}); !strings.Contains(got, "No such file") {
		t.Errorf("the other container sees a volume that it does not mount: %q", got)
	}
}

// testVolumesWithinVolumes mounts volumes, a part of one and files of the node within such that containers cannot write to.
func testVolumesWithinVolumes(t *testing.T, c *cluster) {
	ns := c.namespace(t)
	c.kubectl().in(ns).apply(t, volumeSources)
	pod, got := c.finish(t, ns, `
metadata: {name: within}
spec:
  restartPolicy: Never
  containers:
  - name: c
    image: kemudi.local/busybox:1
    command: [sh, -c, 'cat /v/data-1; echo; cat /v/more/deep/data-2; echo; cat /v/one.conf; echo; echo written > /v/space/f; cat /v/space/f; cat /v/more/deep/name']
    terminationMessagePath: /v/ended
    securityContext: {readOnlyRootFilesystem: true}
    volumeMounts:
    - {name: space, mountPath: /v/space}
    - {name: v, mountPath: /v}
    - {name: more, mountPath: /v/more}
    - {name: deep, mountPath: /v/more/deep}
    - {name: v, mountPath: /v/one.conf, subPath: log_level}
  volumes:
  - {name: v, configMap: {name: config}}
  - {name: more, configMap: {name: none, optional: true}}
  - {name: deep, projected: {sources: [{configMap: {name: config}}, {downwardAPI: {items: [{path: name, fieldRef: {fieldPath: metadata.name}}]}}]}}
  - {name: space, emptyDir: {}}
`)
	if want := "value-1\nvalue-2\nINFO\nwritten\nwithin"; pod.Status.Phase != corev1.PodSucceeded || strings.TrimSpace(got) != want {
		t.Errorf("got %s, %q, want %q", pod.Status.Phase, got, want)
	}
}

// testVolumeUpdates sees changes of config maps, secrets and labels in a running container.
func testVolumeUpdates(t *testing.T, c *cluster) {
	k := c.kubectl().in(c.namespace(t))
	k.do(t, "create", "configmap", "config", "--from-literal=key=value-1")
	c.create(t, k.namespace, `
metadata: {name: watcher, labels: {color: blue}}
spec:
  terminationGracePeriodSeconds: 0
  containers:
  - {name: c, image: kemudi.local/busybox:1, command: [sleep, '1000'], volumeMounts: [{name: v, mountPath: /v}, {name: c, mountPath: /c}, {name: c, mountPath: /fixed, subPath: key}, {name: s, mountPath: /s}]}
  volumes:
  - {name: v, downwardAPI: {items: [{path: labels, fieldRef: {fieldPath: metadata.labels}}]}}
  - {name: c, configMap: {name: config}}
  - {name: s, secret: {secretName: later, optional: true}}
`)
	c.await(t, k.namespace, "watcher", isReady)
	k.do(t, "label", "pod", "watcher", "color=green", "--overwrite")
	k.do(t, "patch", "configmap", "config", "-p", `{"data":{"key":"value-2","new":"n"}}`)
	k.do(t, "create", "secret", "generic", "later", "--from-literal=p=1")
	sees := func(want string) {
		t.Helper()
		wait.Until(t, func() error {
			if got := k.do(t, "exec", "watcher", "--", "sh", "-c", "cat /c/key /c/new /v/labels; ls /s; cat /fixed"); strings.Join(strings.Fields(got), " ") != want {
				return fmt.Errorf("got %q, want %q", got, want)
			}
			return nil
		})
	}
	trace.Proves(t, "C-379", "CMV-008", "CMV-009", "DAPI-004")
	sees(`value-2ncolor="green"p value-1`)
	k.do(t, "delete", "secret", "later")
	sees(`value-2ncolor="green"value-1`)
}

// testExpandedPath mounts a directory that is named after an annotation, and changes that.
func testExpandedPath(t *testing.T, c *cluster) {
	k := c.kubectl().in(c.namespace(t))
	c.create(t, k.namespace, `
metadata: {name: expands, annotations: {mysubpath: mypath}}
spec:
  terminationGracePeriodSeconds: 1
  containers:
  - name: c
    image: kemudi.local/busybox:1
    command: [sh, -c, 'trap exit TERM; while :; do sleep 0.2; done']
    env: [{name: PATH_NAME, valueFrom: {fieldRef: {fieldPath: "metadata.annotations['mysubpath']"}}}]
    volumeMounts: [{name: v, mountPath: /part, subPathExpr: $(PATH_NAME)}, {name: v, mountPath: /whole}]
  volumes: [{name: v, emptyDir: {}}]
`)
	c.await(t, k.namespace, "expands", isReady)
	k.do(t, "exec", "expands", "--", "touch", "/part/test.log")
	if got := k.do(t, "exec", "expands", "--", "ls", "/whole", "/whole/mypath"); got != "/whole:\nmypath\n\n/whole/mypath:\ntest.log\n" {
		t.Errorf("the volume holds %q, want the file in mypath", got)
	}
	k.do(t, "annotate", "pod", "expands", "mysubpath=other", "--overwrite")
	if got := k.do(t, "exec", "expands", "--", "ls", "/part", "/whole"); got != "/part:\ntest.log\n\n/whole:\nmypath\n" {
		t.Errorf("with another annotation the mounts hold %q, want what they held", got)
	}
	k.do(t, "annotate", "pod", "expands", "mysubpath-")
	trace.Proves(t, "C-336")
	k.do(t, "delete", "pod", "expands", patient)
}

// testMissingVolumes says what a pod waits for, and starts it when it comes.
func testMissingVolumes(t *testing.T, c *cluster) {
	trace.Proves(t, "CMV-007", "CMV-K04", "VOL-K06")
	ns := c.namespace(t)
	c.create(t, ns, "metadata: {name: waits}\nspec:\n  restartPolicy: Never\n  containers:\n  - {name: c, image: kemudi.local/busybox:1, command: [cat, /v/key], volumeMounts: [{name: v, mountPath: /v}]}\n  volumes: [{name: v, configMap: {name: log-config}}]\n")
	c.awaitEvent(t, ns, "waits", "FailedMount", `MountVolume.SetUp failed for volume "v" : configmap "log-config" not found`)
	c.await(t, ns, "waits", isWaiting("ContainerCreating"))
	c.kubectl().in(ns).do(t, "create", "configmap", "log-config", "--from-literal=key=here")
	c.await(t, ns, "waits", hasEnded)
	if got := c.logs(t, ns, "waits", corev1.PodLogOptions{}); got != "here" {
		t.Errorf("got %q, want here", got)
	}
	c.create(t, ns, "metadata: {name: nowhere}\nspec:\n  containers:\n  - {name: c, image: kemudi.local/busybox:1, volumeMounts: [{name: v, mountPath: /v}]}\n  volumes: [{name: v, hostPath: {path: /does/not/exist, type: Directory}}]\n")
	c.awaitEvent(t, ns, "nowhere", "FailedMount", `hostPath type check failed: /does/not/exist is not a directory`)
}

package e2e

import (
	"fmt"
	"regexp"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"

	"github.com/kemudi/kemudi/internal/trace"
	"github.com/kemudi/kemudi/test/wait"
)

// testBadManifests gets a clear answer to everything that cannot be right, and
// leaves nothing behind.
func testBadManifests(t *testing.T, c *cluster) {
	k := c.kubectls()[0].in(c.namespace(t))
	const head = "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: m}\n"
	deployment := func(labels, more string) string {
		return "apiVersion: apps/v1\nkind: Deployment\nmetadata: {name: d}\nspec: {replicas: 0, selector: {matchLabels: {app: a}}, template: {metadata: {labels: {" + labels + "}}, spec: {containers: [{name: c, image: i" + more + "}]}}}\n"
	}
	deploymentE := func(labels, more string) string {
		return strings.Replace(deployment(labels, more), "name: d", "name: e", 1)
	}
	for _, tc := range []struct{ name, manifest, args, want, proves string }{
		{"malformed YAML", "apiVersion: v1\nkind: [", "create -f -", "error parsing", ""},
		{"unknown kind", "apiVersion: v1\nkind: Nothing\nmetadata: {name: m}\n", "create --validate=false -f -", `no matches for kind "Nothing" in version "v1"`, ""},
		{"unknown field, strictly", head + "dada: {a: b}\n", "create --validate=strict -f -", `strict decoding error: unknown field "dada"`, ""},
		{"wrong type", deployment("app: a", ", ports: [{containerPort: many}]"), "create --validate=ignore -f -", "cannot be handled as a Deployment", ""},
		{"wrong namespace", head + "", "create -f - -n nowhere", `namespaces "nowhere" not found`, ""},
		{"name too long", "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: " + strings.Repeat("n", 254) + "}\n", "create -f -", "must be no more than 253", ""},
		{"bad name", "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: Not_Good}\n", "create -f -", "a lowercase RFC 1123 subdomain must consist of", ""},
		{"empty key", head + "data: {'': x}\n", "create -f -", "data", "C-239"},
		{"empty key of a secret", "apiVersion: v1\nkind: Secret\nmetadata: {name: m}\ndata: {'': eA==}\n", "create -f -", "data", "C-320"},
		{"stale version", "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: there, resourceVersion: '1'}\n", "replace -f -", "the object has been modified; please apply your changes to the latest version and try again", ""},
		{"name taken", "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: there}\n", "create -f -", `configmaps "there" already exists`, ""},
		{"selector without its labels", deployment("app: b", ""), "create -f -", "`selector` does not match template `labels`", "DEP-096"},
		{"other selector", strings.Replace(deployment("app: a, x: z", ""), "matchLabels: {app: a}", "matchLabels: {x: z}", 1), "apply -f -", "field is immutable", "DEP-043"},
		{"no image", strings.Replace(deploymentE("app: a", ""), ", image: i", "", 1), "create -f -", "spec.template.spec.containers[0].image: Required value", ""},
		{"probe on an init container", strings.Replace(deploymentE("app: a", ""), "containers:", "initContainers: [{name: i, image: i, readinessProbe: {tcpSocket: {port: 1}}}], containers:", 1), "create -f -", "initContainers[0].readinessProbe", "INIT-031"},
		{"two containers of one name", strings.Replace(deploymentE("app: a", ""), "containers: [", "containers: [{name: c, image: i}, ", 1), "create -f -", `Duplicate value: "c"`, "INIT-035"},
		{"an init container of the same name", strings.Replace(deploymentE("app: a", ""), "containers:", "initContainers: [{name: c, image: i}], containers:", 1), "create -f -", `Duplicate value: "c"`, "INIT-035"},
		{"too large", head + "data: {a: " + strings.Repeat("x", 1<<20+1) + "}\n", "create -f -", "may not be more than 1048576 bytes", ""},
		{"no such object", "", "get pod none", `pods "none" not found`, ""},
		{"no such resource", "", "get nothings", `the server doesn't have a resource type "nothings"`, ""},
		{"bad selector", "", "get pods -l a=(", "unable to parse requirement", ""},
	} {
		if tc.name == "other selector" {
			k.apply(t, deployment("app: a, x: z", ""))
		}
		if tc.name == "stale version" {
			k.do(t, "create", "configmap", "there")
		}
		o := k.try(t, tc.manifest, strings.Fields(tc.args)...)
		if tc.proves != "" {
			trace.Proves(t, tc.proves)
		}
		if o.code != 1 || !strings.Contains(o.stderr, tc.want) {
			t.Errorf("%s: got exit code %d, %.2000q; want 1 and %q", tc.name, o.code, o.all(), tc.want)
		}
	}
	if o := k.try(t, head+"dada: {a: b}\n", "create", "--validate=warn", "-f", "-"); o.code != 0 || !strings.Contains(o.stderr, `Warning: unknown field "dada"`) {
		t.Errorf("unknown field: got %+v, want it made with a warning", o)
	}
	if got := k.do(t, "get", "configmaps,secrets,deployments", "-o", "name"); got != "configmap/kube-root-ca.crt\nconfigmap/m\nconfigmap/there\ndeployment.apps/d\n" {
		t.Errorf("what is left of the bad manifests: got %q", got)
	}
}

// testBadRequests sends what no kubectl would.
func testBadRequests(t *testing.T, c *cluster) {
	ns := c.namespace(t)
	rest := c.client.CoreV1().RESTClient()
	for _, tc := range []struct {
		name, contentType, body string
		code                    int
		want                    string
	}{
		{"malformed JSON", "application/json", `{"kind":`, 400, "BadRequest"},
		{"malformed protobuf", "application/vnd.kubernetes.protobuf", "k8s\x00garbage", 400, "BadRequest"},
		{"not protobuf", "application/vnd.kubernetes.protobuf", "garbage", 400, "BadRequest"},
		{"unknown media type", "text/plain", "hello", 415, "UnsupportedMediaType"},
		{"other kind", "application/json", `{"apiVersion":"v1","kind":"Pod","metadata":{"name":"m"}}`, 400, "BadRequest"},
		{"oversized", "application/json", `{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"m"},"data":{"a":"` + strings.Repeat("x", 4<<20) + `"}}`, 413, "RequestEntityTooLarge"},
		{"empty", "application/json", "", 400, "BadRequest"},
		{"twice the same field, strictly", "application/json", `{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"m"},"data":{"a":"b"},"data":{"a":"c"}}`, 400, `duplicate field \"data\"`},
	} {
		code := 0
		res := rest.Post().Namespace(ns).Resource("configmaps").Param("fieldValidation", "Strict").SetHeader("Content-Type", tc.contentType).Body([]byte(tc.body)).Do(t.Context()).StatusCode(&code)
		body, err := res.Raw()
		if code != tc.code || err == nil || !strings.Contains(string(body), tc.want) && !strings.Contains(fmt.Sprintf("%#v", err), tc.want) {
			t.Errorf("%s: got %d, %v, %.300q; want %d %s", tc.name, code, err, body, tc.code, tc.want)
		}
	}
}

// testBadPods says in status and events what keeps a pod from running.
func testBadPods(t *testing.T, c *cluster) {
	ns := c.namespace(t)
	pod := func(name, spec string) {
		c.create(t, ns, fmt.Sprintf("metadata: {name: %s}\nspec:\n  terminationGracePeriodSeconds: 0\n  containers: [{name: c, %s}]\n", name, spec))
	}
	t.Run("image that is not there", func(t *testing.T) {
		t.Parallel()
		trace.Proves(t, "PLC-004", "PLC-044", "PLC-045", "IMG-011", "IMG-048")
		pod("missing", "image: '127.0.0.1:1/none:1'")
		c.awaitEvent(t, ns, "missing", "Failed", "Error: ErrImagePull")
		c.awaitEvent(t, ns, "missing", "Pulling", `Pulling image "127.0.0.1:1/none:1"`)
		e := c.awaitEvent(t, ns, "missing", "Failed", `Failed to pull image "127.0.0.1:1/none:1": `)
		if e.InvolvedObject.FieldPath != "spec.containers{c}" || e.Source.Component != "kubelet" || e.Type != corev1.EventTypeWarning {
			t.Errorf("event: got %+v", e)
		}
		got := c.await(t, ns, "missing", isWaiting("ImagePullBackOff"))
		if got.Status.Phase != corev1.PodPending {
			t.Errorf("phase: got %s, want Pending", got.Status.Phase)
		}
		c.awaitEvent(t, ns, "missing", "BackOff", `Back-off pulling image "127.0.0.1:1/none:1"`)
	})
	t.Run("image that may not be pulled", func(t *testing.T) {
		t.Parallel()
		trace.Proves(t, "IMG-009")
		pod("never", "image: 'kemudi.local/none:1', imagePullPolicy: Never")
		c.await(t, ns, "never", isWaiting("ErrImageNeverPull"))
		c.awaitEvent(t, ns, "never", "ErrImageNeverPull", `Container image "kemudi.local/none:1" is not present with pull policy of Never`)
	})
	t.Run("image with an impossible name", func(t *testing.T) {
		t.Parallel()
		pod("invalid", "image: 'NOT/an::image'")
		c.await(t, ns, "invalid", isWaiting("InvalidImageName"))
		c.awaitEvent(t, ns, "invalid", "InspectFailed", `Failed to apply default image tag "NOT/an::image": couldn't parse image name`)
	})
	t.Run("command that is not there", func(t *testing.T) {
		t.Parallel()
		pod("command", "image: kemudi.local/busybox:1, command: [/no/such/program]")
		got := c.await(t, ns, "command", func(pod *corev1.Pod) error {
			if s := pod.Status.ContainerStatuses; len(s) > 0 && s[0].LastTerminationState.Terminated != nil {
				return nil
			}
			return fmt.Errorf("no container has ended")
		})
		end := got.Status.ContainerStatuses[0].LastTerminationState.Terminated
		if end.Reason != "StartError" || end.ExitCode != 128 || !strings.Contains(end.Message, "/no/such/program") {
			t.Errorf("got %+v, want StartError, 128 and the program's name", end)
		}
		c.awaitEvent(t, ns, "command", "Failed", "no such file or directory")
	})
	t.Run("port that is taken", func(t *testing.T) {
		t.Parallel()
		c.create(t, ns, "metadata: {name: port}\nspec:\n  terminationGracePeriodSeconds: 0\n  containers: [{name: a, image: kemudi.local/web:1}, {name: b, image: kemudi.local/web:1}]\n")
		got := c.await(t, ns, "port", isWaiting("CrashLoopBackOff"))
		for _, s := range got.Status.ContainerStatuses {
			end := s.LastTerminationState.Terminated
			if s.State.Waiting == nil || end == nil {
				continue
			}
			if end.ExitCode != 1 {
				t.Errorf("got %+v, want exit code 1", end)
			}
			wait.Until(t, func() error { // it may have been started once more, and not have said it yet
				if log := c.logs(t, ns, "port", corev1.PodLogOptions{Container: s.Name}); !strings.Contains(log, "address already in use") {
					return fmt.Errorf("log: got %q", log)
				}
				return nil
			})
		}
	})
}

// testStuckRollout keeps the old pods while the new ones cannot start, and is undone. The deadline
// is set once the rollout stands still: before, a slow machine might miss it between two steps.
func testStuckRollout(t *testing.T, c *cluster) {
	k := c.kubectl().in(c.namespace(t))
	k.apply(t, twoWebs)
	k.rolledOut(t, "web")
	lines := func(args, line string, n int) {
		t.Helper()
		wait.Until(t, func() error {
			got := k.do(t, strings.Fields(args)...)
			if found := len(regexp.MustCompile(line).FindAllString(got, -1)); found != n {
				return fmt.Errorf("%s: got %q, want %d lines with %q", args, got, n, line)
			}
			return nil
		})
	}
	stuck := func() {
		t.Helper()
		k.do(t, "patch", "deployment", "web", "-p", `{"spec":{"progressDeadlineSeconds":3}}`)
		if o := k.try(t, "", "rollout", "status", "deployment/web"); o.code != 1 || !strings.Contains(o.stderr, `error: deployment "web" exceeded its progress deadline`) {
			t.Errorf("rollout status: got %+v", o)
		}
	}
	k.do(t, "set", "image", "deployment/web", "web=127.0.0.1:1/none:1")
	trace.Proves(t, "DEP-052", "DEP-053")
	lines("get pods", ` 1/1 +Running +0 `, 2)
	lines("get pods", ` 0/1 +ImagePullBackOff +0 `, 1)
	lines("get replicasets", ` 2 +2 +2 `, 1)
	lines("get replicasets", ` 1 +1 +0 `, 1)
	lines("get deployment web", `2/2     1            2`, 1)
	trace.Proves(t, "DEP-079/images", "DEP-088")
	stuck()
	k.wants(t, []string{"2/2     1            2"}, "get", "deployment", "web")
	trace.Proves(t, "DEP-081")
	k.wants(t, []string{"Progressing    False   ProgressDeadlineExceeded"}, "describe", "deployment", "web")
	k.do(t, "patch", "deployment", "web", "-p", `{"spec":{"progressDeadlineSeconds":600}}`)
	k.do(t, "rollout", "undo", "deployment/web")
	k.rolledOut(t, "web")
	// A program that does not find what it needs, and ends again and again; its probe keeps it from
	// counting in between, however long it takes to end.
	k.do(t, "patch", "deployment", "web", "-p", `{"spec":{"template":{"spec":{"containers":[{"name":"web","args":["--no-such-flag"],"readinessProbe":{"httpGet":{"path":"/readyz","port":8080}}}]}}}}`)
	lines("get pods", ` 0/1 +(Error|CrashLoopBackOff|Running) +[1-9]`, 1)
	lines("get deployment web", `2/2     1            2`, 1)
	trace.Proves(t, "DEP-079/misconfiguration")
	stuck()
	k.wants(t, []string{"2/2     1            2"}, "get", "deployment", "web")
	k.do(t, "patch", "deployment", "web", "-p", `{"spec":{"progressDeadlineSeconds":600}}`)
	k.do(t, "rollout", "undo", "deployment/web")
	k.rolledOut(t, "web")
}

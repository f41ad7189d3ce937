package e2e

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/kemudi/kemudi/internal/trace"
	"github.com/kemudi/kemudi/test/wait"
)

// everyKubectl runs a test with the unmodified kubectl and with ours.
func everyKubectl(test func(*testing.T, kubectl)) func(*testing.T, *cluster) {
	return func(t *testing.T, c *cluster) {
		for _, k := range c.kubectls() {
			t.Run(k.name, func(t *testing.T) {
				t.Parallel()
				test(t, k.in(c.namespace(t)))
			})
		}
	}
}

const twoWebs = `
apiVersion: apps/v1
kind: Deployment
metadata: {name: web, labels: {app: web}}
spec:
  replicas: 2
  selector: {matchLabels: {app: web}}
  template:
    metadata: {labels: {app: web}}
    spec:
      terminationGracePeriodSeconds: 1
      containers:
      - name: web
        image: kemudi.local/web:1
        args: [--drain=0s]
        ports: [{name: http, containerPort: 8080}]
---
apiVersion: v1
kind: Service
metadata: {name: web, labels: {app: web}}
spec:
  selector: {app: web}
  ports: [{name: http, port: 80, targetPort: http}]
`

// testReading looks at objects in all the ways that kubectl has.
func testReading(t *testing.T, k kubectl) {
	k.apply(t, twoWebs)
	k.rolledOut(t, "web")
	pod := k.pods(t, k.namespace, "app=web")[0]
	hash := pod.Labels["pod-template-hash"]
	for _, c := range []struct {
		args   string
		want   []string
		proves string
	}{
		{"get deploy", []string{"NAME   READY   UP-TO-DATE   AVAILABLE   AGE", "web    2/2     2            2"}, "DEP-071"},
		{"get all", []string{"pod/web-" + hash, "service/web", "deployment.apps/web", "replicaset.apps/web-" + hash}, ""},
		{"get pods -o wide", []string{"IP", "NODE", "NOMINATED NODE", "READINESS GATES", pod.Status.PodIP, "1/1     Running   0"}, ""},
		{"get pods --show-labels", []string{"LABELS", "app=web,pod-template-hash=" + hash}, "DEP-016"},
		{"get rs -o wide", []string{"DESIRED   CURRENT   READY", "kemudi.local/web:1", "app=web,pod-template-hash=" + hash}, ""},
		{"get pod " + pod.Name + " -o yaml", []string{"apiVersion: v1\nkind: Pod\n", "  name: " + pod.Name + "\n", "    phase: Running\n"[2:]}, ""},
		{"get deployment.v1.apps web -o json", []string{`"apiVersion": "apps/v1"`, `"kind": "Deployment"`, `"readyReplicas": 2`}, ""},
		{"get pods -o name", []string{"pod/" + pod.Name + "\n"}, ""},
		{"get pods -o jsonpath={.items[*].spec.nodeName}", []string{pod.Spec.NodeName}, ""},
		{"get pods -o custom-columns=NAME:.metadata.name,IP:.status.podIP", []string{"NAME", "IP\n", pod.Name, pod.Status.PodIP + "\n"}, ""},
		{"get pods --sort-by=.metadata.name -l app=web,pod-template-hash=" + hash, []string{pod.Name}, ""},
		{"get pods --field-selector=status.phase=Running,metadata.name=" + pod.Name, []string{pod.Name}, ""},
		{"get pods -A", []string{"NAMESPACE", k.namespace}, ""},
		{"get service web", []string{"TYPE        CLUSTER-IP", "ClusterIP", "80/TCP"}, ""},
		{"get endpointslices", []string{"ADDRESSTYPE   PORTS   ENDPOINTS", "IPv4", "8080"}, ""},
		{"get nodes -o wide", []string{"INTERNAL-IP", machineIP, "Ready", "containerd://"}, ""},
		{"get events --field-selector=involvedObject.name=" + pod.Name, []string{"Scheduled", "Started"}, ""},
		{"events --for=pod/" + pod.Name, []string{"Scheduled", "Successfully assigned", "Container started"}, ""},
		{"describe pod " + pod.Name, []string{"Name:             " + pod.Name, "Namespace:        " + k.namespace, "Labels:           app=web", "IP:               " + pod.Status.PodIP, "Image:         kemudi.local/web:1", "Node:             " + pod.Spec.NodeName + "/" + machineIP, "Controlled By:  ReplicaSet/web-" + hash, "    State:          Running\n      Started:      ", "Service Account:  default", "kube-api-access-", "QoS Class:                   BestEffort", "node.kubernetes.io/not-ready:NoExecute op=Exists for 300s", "Events:"}, "C-175/pod PLC-042"},
		{"describe deployment web", []string{"Replicas:               2 desired | 2 updated | 2 total | 2 available | 0 unavailable", "StrategyType:           RollingUpdate", "25% max unavailable, 25% max surge", "  Type           Status  Reason\n", "Available      True    MinimumReplicasAvailable", "Progressing    True    NewReplicaSetAvailable", "OldReplicaSets:  <none>", "NewReplicaSet:   web-" + hash + " (2/2 replicas created)", "ScalingReplicaSet", "Scaled up replica set web-" + hash}, "DEP-036"},
		{"describe service web", []string{"Name:  ", "Namespace:                " + k.namespace, "Labels:                   app=web", "Annotations:  ", "Selector:                 app=web", "Type:                     ClusterIP", "Port:                     http  80/TCP", "TargetPort:               http/TCP", "IP:    ", pod.Status.PodIP + ":8080", "Session Affinity:         None", "Events:                   <none>"}, "C-175/service CONN-020"},
		{"describe node", []string{"Capacity:", "Allocatable:", "  Ready            True", "KubeletReady", "PodCIDR:", "Non-terminated Pods:", "Allocated resources:"}, "C-175/node"},
		{"describe namespace " + k.namespace, []string{"Name:         " + k.namespace, "Labels:       kubernetes.io/metadata.name=" + k.namespace, "Status:       Active", "No resource quota."}, "C-175/namespace"},
		{"explain deployment.spec.strategy", []string{"GROUP:      apps", "KIND:       Deployment", "rollingUpdate", "DeploymentStrategy"}, ""},
		{"explain pods.spec.containers.livenessProbe --recursive", []string{"httpGet", "periodSeconds"}, ""},
		{"api-resources", []string{"NAME", "SHORTNAMES", "deployments", "deploy ", "apps/v1", "configmaps", "cm "}, ""},
		{"api-versions", []string{"apps/v1\n", "\nv1\n", "rbac.authorization.k8s.io/v1\n"}, "C-173"},
		{"version", []string{"Client Version", "Server Version: v1."}, ""},
		{"cluster-info", []string{"Kubernetes control plane", "is running at"}, "C-174"},
		{"auth can-i create pods", []string{"yes"}, ""},
		{"auth whoami", []string{"Username", "Groups", "system:masters"}, ""},
		{"auth can-i --list", []string{"*.*"}, ""},
		{"get --raw /readyz?verbose", []string{"ok"}, ""},
		{"config view", []string{"server: https://127.0.0.1:6443"}, ""},
		{"rollout status deployment/web", []string{`deployment "web" successfully rolled out`}, ""},
	} {
		// Events and endpoints come a moment after what they are about.
		if c.proves != "" {
			trace.Proves(t, strings.Fields(c.proves)...)
		}
		wait.Until(t, func() error { return contains(k.do(t, strings.Fields(c.args)...), c.want) })
	}
	trace.Proves(t, "PLC-047")
	started := regexp.MustCompile(`State: +Running\n +Started: +(.*)\n`).FindStringSubmatch(k.do(t, "describe", "pod", pod.Name))
	if started == nil {
		t.Error("describe pod says nowhere when a running container has started")
	} else if _, err := time.Parse(time.RFC1123Z, started[1]); err != nil {
		t.Errorf("start of a container: %v", err)
	}
	trace.Proves(t, "CONN-021")
	endpoints := regexp.MustCompile(`^NAME +ENDPOINTS +AGE\nweb +[0-9.]+:8080,[0-9.]+:8080 +\d+[ms].*\n$`)
	wait.Until(t, func() error {
		if o := k.try(t, "", "get", "ep", "web"); !endpoints.MatchString(o.stdout) || !strings.Contains(o.stdout, pod.Status.PodIP+":8080") {
			return fmt.Errorf("get ep: got %q, want both pods", o.all())
		}
		return nil
	})
	if o := k.try(t, "", "auth", "can-i", "create", "pods", "--as=nobody"); o.code != 1 || o.stdout != "no\n" {
		t.Errorf("auth can-i as nobody: got exit code %d, %q; want 1, no", o.code, o.all())
	}
	if o := k.try(t, "", "get", "pods", "--as=nobody"); o.code != 1 || !strings.Contains(o.stderr, `Error from server (Forbidden): pods is forbidden: User "nobody" cannot list resource "pods" in API group "" in the namespace "`+k.namespace+`"`) {
		t.Errorf("get pods as nobody: got exit code %d, %q", o.code, o.all())
	}
}

// testChanging changes objects in all the ways that kubectl has.
func testChanging(t *testing.T, k kubectl) {
	for _, c := range []struct{ args, want string }{
		{"create deployment web --image=kemudi.local/web:1 --replicas=2", "deployment.apps/web created"},
		{"wait --for=condition=Available deployment/web " + patient, "deployment.apps/web condition met"},
		{"wait --for=jsonpath={.status.readyReplicas}=2 deployment/web " + patient, "deployment.apps/web condition met"},
		{"expose deployment web --port=80 --target-port=8080", "service/web exposed"},
		{"label deployment web tier=front", "deployment.apps/web labeled"},
		{"label deployment web tier=back --overwrite", "deployment.apps/web labeled"},
		{"get deployment -l tier=back -o name", "deployment.apps/web"},
		{"label deployment web tier-", "deployment.apps/web unlabeled"},
		{"annotate deployment web note=hello", "deployment.apps/web annotated"},
		{"scale deployment web --replicas=1 --current-replicas=2", "deployment.apps/web scaled"},
		{"set env deployment/web COLOR=blue", "deployment.apps/web env updated"},
		{"set resources deployment/web --limits=memory=64Mi", "deployment.apps/web resource requirements updated"},
		{`patch deployment web --type=json -p [{"op":"add","path":"/metadata/labels/kind","value":"json"}]`, "deployment.apps/web patched"},
		{`patch deployment web --type=merge -p {"metadata":{"labels":{"kind":"merge"}}}`, "deployment.apps/web patched"},
		{`patch deployment web -p {"spec":{"template":{"spec":{"terminationGracePeriodSeconds":1}}}}`, "deployment.apps/web patched"},
		{"get deployment web --show-labels", "app=web,kind=merge"},
		{"rollout pause deployment/web", "deployment.apps/web paused"},
		{"set image deployment/web web=kemudi.local/web:2", "deployment.apps/web image updated"},
		{"rollout resume deployment/web", "deployment.apps/web resumed"},
		{"rollout restart deployment/web", "deployment.apps/web restarted"},
		{"rollout status deployment/web " + patient, "successfully rolled out"},
		{"rollout history deployment/web", "REVISION  CHANGE-CAUSE"},
		{"rollout undo deployment/web --to-revision=1", "deployment.apps/web rolled back"},
		{"rollout status deployment/web " + patient, "successfully rolled out"},
		{"create configmap settings --from-literal=a=1 --from-literal=b=2", "configmap/settings created"},
		{"create secret generic password --from-literal=p=secret", "secret/password created"},
		{"create serviceaccount robot", "serviceaccount/robot created"},
		{"create role reader --verb=get,list --resource=pods", "role.rbac.authorization.k8s.io/reader created"},
		{"create rolebinding reader --role=reader --serviceaccount=" + k.namespace + ":robot", "rolebinding.rbac.authorization.k8s.io/reader created"},
		{"auth can-i list pods --as=system:serviceaccount:" + k.namespace + ":robot", "yes"},
		{"create token robot", "ey"},
		{"get secret password -o jsonpath={.data.p}", "c2VjcmV0"},
		{"run single --image=kemudi.local/agnhost:1 --restart=Never -- pause", "pod/single created"},
		{"wait --for=condition=Ready pod/single " + patient, "pod/single condition met"},
		{"cordon vm --dry-run=client", "cordoned (dry run)"},
		{"delete pod single --grace-period=1", `pod "single" deleted`},
	} {
		args := strings.Fields(c.args)
		for i, arg := range args {
			if arg == "vm" {
				args[i] = k.pods(t, k.namespace, "")[0].Spec.NodeName
			}
		}
		if args[0] == "auth" { // until the authorizer knows
			wait.Until(t, func() error { return contains(k.try(t, "", args...).stdout, []string{c.want}) })
			continue
		}
		k.wants(t, []string{c.want}, args...)
	}
	trace.Proves(t, "CONN-041")
	k.wants(t, []string{`deployment.apps "web" deleted`, `service "web" deleted`}, "delete", "deployments,services,configmaps", "-l", "app=web")
	k.manifests(t)
}

// manifests applies, compares, replaces and deletes from manifests.
func (k kubectl) manifests(t *testing.T) {
	t.Helper()
	manifest := func(value string) string {
		return "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: m}\ndata: {key: " + value + "}\n"
	}
	for _, c := range []struct{ stdin, args, want string }{
		{manifest("a"), "create -f -", "configmap/m created"},
		{manifest("b"), "replace -f -", "configmap/m replaced"},
		{manifest("c"), "apply --server-side --force-conflicts -f -", "configmap/m serverside-applied"},
		{manifest("c"), "apply --server-side -f - --dry-run=server", "configmap/m serverside-applied (server dry run)"},
		{manifest("c"), "delete -f -", `configmap "m" deleted`},
		{manifest("d"), "apply -f -", "configmap/m created"},
		{manifest("d"), "apply -f -", "configmap/m unchanged"},
		{manifest("e"), "apply -f -", "configmap/m configured"},
		{manifest("e"), "apply -f - --dry-run=server", "configmap/m unchanged (server dry run)"},
	} {
		if o := k.try(t, c.stdin, strings.Fields(c.args)...); o.code != 0 || !strings.Contains(o.stdout, c.want) {
			t.Errorf("%s: got exit code %d, %q; want %q", c.args, o.code, o.all(), c.want)
		}
	}
	if o := k.try(t, manifest("f"), "diff", "-f", "-"); o.code != 1 || !strings.Contains(o.stdout, "-  key: e\n+  key: f\n") {
		t.Errorf("diff: got exit code %d, %q; want 1 and the difference", o.code, o.all())
	}
	k.do(t, "delete", "configmap", "m")
}

// testWatching sees changes as they come.
func testWatching(t *testing.T, k kubectl) {
	watch := k.begin(t, false, k.line("get", "configmaps", "-w", "--output-watch-events", "-l", "seen=yes")...)
	for i, line := range []string{"create configmap w", "label configmap w seen=yes", "annotate configmap w a=b", "label configmap w seen=no --overwrite", "delete configmap w"} {
		k.do(t, strings.Fields(line)...)
		if i == 1 {
			watch.sees(t, "ADDED")
		}
	}
	watch.sees(t, "DELETED")
	watch.interrupt()
	watch.exits(t)
	got := regexp.MustCompile(`\b(ADDED|MODIFIED|DELETED)\b`).FindAllString(watch.output(), -1)
	if fmt.Sprint(got) != "[ADDED MODIFIED DELETED]" {
		t.Errorf("got the events %v of\n%s\nwant ADDED, MODIFIED, DELETED", got, watch.all())
	}
}

const talker = `
apiVersion: v1
kind: Pod
metadata: {name: talker}
spec:
  terminationGracePeriodSeconds: 1
  containers:
  - name: main
    image: kemudi.local/agnhost:1
    args: [netexec]
    env: [{name: COLOR, value: blue}]
    readinessProbe: {httpGet: {port: 8080}, periodSeconds: 1, timeoutSeconds: 60}
  - name: side
    image: kemudi.local/busybox:1
    command: [sh, -c, 'i=0; while true; do i=$((i+1)); echo line $i; sleep 0.3; done']
  - name: echo
    image: kemudi.local/busybox:1
    stdin: true
    tty: true
    command: [sh, -c, 'while read line; do echo "heard $line"; done']
`

// testTalking runs commands in containers, copies files and forwards ports.
func testTalking(t *testing.T, k kubectl) {
	k.apply(t, talker)
	k.do(t, "wait", "--for=condition=Ready", "pod/talker", patient)
	k.execs(t)
	k.copies(t)
	k.forwards(t)
	attach := k.begin(t, true, k.line("attach", "-it", "talker", "-c", "echo")...)
	attach.types(t, "\nhello\n")
	trace.Proves(t, "COMM-012")
	attach.sees(t, "heard hello")
	attach.interrupt()
	attach.exits(t)
	if out := k.do(t, "get", "pod", "talker", "-o", "jsonpath={.status.containerStatuses[*].restartCount}"); out != "0 0 0" {
		t.Errorf("restarts after all that: got %q, want 0 0 0", out)
	}
}

func (k kubectl) execs(t *testing.T) {
	t.Helper()
	trace.Proves(t, "COMM-010/kubelet", "CON-015/exec")
	if got := k.do(t, "exec", "talker", "-c", "main", "--", "sh", "-c", "echo $COLOR; hostname"); got != "blue\ntalker\n" {
		t.Errorf("exec: got %q", got)
	}
	trace.Proves(t, "WHAT-018/from-each-other", "WHAT-019", "WHAT-020")
	if got := k.do(t, "exec", "talker", "-c", "side", "--", "sh", "-c", "cat /proc/[0-9]*/cmdline | tr '\\0' ' '; ls /agnhost 2>&1; true"); strings.Contains(got, "/agnhost netexec") || !strings.Contains(got, "No such file") {
		t.Errorf("the other container sees processes or files of the first: %q", got)
	}
	big := strings.Repeat("0123456789abcdef", 1<<16) // 1 MiB
	if o := k.try(t, big, "exec", "-i", "talker", "-c", "main", "--", "cat"); o.code != 0 || o.stdout != big {
		t.Errorf("exec -i cat of 1 MiB: got exit code %d, %d bytes, %s", o.code, len(o.stdout), o.stderr)
	}
	if o := k.try(t, "", "exec", "talker", "-c", "main", "--", "sh", "-c", "echo out; echo err >&2; exit 42"); o.code != 42 || o.stdout != "out\n" || !strings.Contains(o.stderr, "err\n") || !strings.Contains(o.stderr, "exit code 42") {
		t.Errorf("exec with exit code 42: got %+v", o)
	}
	if o := k.try(t, "", "exec", "talker", "-c", "main", "--", "no-such-program"); o.code == 0 || !strings.Contains(o.stderr, "no-such-program") {
		t.Errorf("exec of no program: got %+v", o)
	}
	if o := k.try(t, "", "exec", "talker", "-c", "nobody", "--", "true"); o.code == 0 || !strings.Contains(o.stderr, "container nobody") {
		t.Errorf("exec in no container: got %+v", o)
	}
	shell := k.begin(t, true, k.line("exec", "-it", "talker", "-c", "main", "--", "sh")...)
	shell.types(t, "until stty size | grep '33 10[1]'; do sleep 0.1; done 2>/dev/null; tty; echo sum $((20+22))\n")
	shell.sees(t, "33 101")
	shell.sees(t, "/dev/pts/")
	shell.sees(t, "sum 42")
	// By a program of its own: what a shell has only begun to start is not interrupted.
	shell.types(t, "sh -c 'echo now sleep\"\"ing; exec sleep 1000'\n")
	shell.sees(t, "now sleeping")
	shell.types(t, "\x03echo inter\"\"rupted\n")
	shell.sees(t, "interrupted")
	shell.types(t, "exit 7\n")
	if code := shell.exits(t); code != 7 {
		t.Errorf("shell: got exit code %d, want 7:\n%s", code, shell.output())
	}
}

func (k kubectl) copies(t *testing.T) {
	t.Helper()
	dir := t.TempDir()
	want := strings.Repeat("content\n", 100_000)
	if err := os.MkdirAll(filepath.Join(dir, "from/sub"), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, "from/sub/file"), []byte(want), 0o644); err != nil {
		t.Fatal(err)
	}
	k.do(t, "cp", filepath.Join(dir, "from"), "talker:/tmp/copy", "-c", "main")
	if got := k.do(t, "exec", "talker", "-c", "main", "--", "sh", "-c", "wc -c < /tmp/copy/sub/file"); strings.TrimSpace(got) != fmt.Sprint(len(want)) {
		t.Errorf("copied file: got %s bytes, want %d", got, len(want))
	}
	k.do(t, "cp", "talker:/tmp/copy", filepath.Join(dir, "to"), "-c", "main")
	got, err := os.ReadFile(filepath.Join(dir, "to/sub/file"))
	if err != nil || string(got) != want {
		t.Errorf("file copied there and back: got %d bytes, %v; want %d", len(got), err, len(want))
	}
}

func (k kubectl) forwards(t *testing.T) {
	t.Helper()
	k.do(t, "expose", "pod", "talker", "--port=80", "--target-port=8080", "--labels=app=talker", "--selector=app=talker")
	k.do(t, "label", "pod", "talker", "app=talker")
	// The pod is older than its service: it does not hear of it.
	got := k.do(t, "exec", "talker", "-c", "main", "--", "env")
	trace.Proves(t, "CONN-023", "ENV-008", "SVC-075")
	if strings.Contains(got, "TALKER_") {
		t.Errorf("variables of a pod that is older than its service: got %s", got)
	}
	wantLines(t, got, "KUBERNETES_SERVICE_HOST=10.96.0.1", "KUBERNETES_SERVICE_PORT=443", "KUBERNETES_SERVICE_PORT_HTTPS=443")
	for _, target := range []string{"pod/talker 8080", "service/talker 80"} {
		name, port, _ := strings.Cut(target, " ")
		forward := k.begin(t, false, k.line("port-forward", name, ":"+port)...)
		local := forward.finds(t, regexp.MustCompile(`Forwarding from 127\.0\.0\.1:(\d+) ->`))[1]
		trace.Proves(t, "COMM-013")
		for range 3 {
			if got, err := get(k.host, "http://127.0.0.1:"+local+"/hostname"); err != nil || got != "talker" {
				t.Errorf("through the forwarded port: got %q, %v; want talker; kubectl says %s", got, err, forward.all())
			}
		}
		forward.interrupt()
		forward.exits(t)
	}
}

// testLogs reads what containers wrote.
func testLogs(t *testing.T, k kubectl) {
	trace.Proves(t, "C-268", "INIT-025", "COMM-011")
	k.apply(t, `
apiVersion: v1
kind: Pod
metadata: {name: lines, labels: {app: lines}}
spec:
  restartPolicy: Never
  initContainers:
  - {name: init, image: kemudi.local/busybox:1, command: [sh, -c, 'echo first']}
  containers:
  - {name: a, image: kemudi.local/busybox:1, command: [sh, -c, 'for i in 1 2 3 4 5; do echo out $i; done; printf no-newline']}
  - {name: b, image: kemudi.local/busybox:1, command: [sh, -c, 'echo from b; head -c 40000 /dev/zero | tr "\0" x; echo; echo end']}
  - {name: e, image: kemudi.local/busybox:1, command: [sh, -c, 'echo err >&2']}
---
apiVersion: v1
kind: Pod
metadata: {name: crash}
spec:
  containers:
  - {name: c, image: kemudi.local/busybox:1, command: [sh, -c, 'echo "life $(cat /d/n 2>/dev/null)"; echo -n x >> /d/n; [ $(wc -c < /d/n) = 1 ] && exit 1; exec sleep 1000'], volumeMounts: [{name: d, mountPath: /d}]}
  terminationGracePeriodSeconds: 0
  volumes: [{name: d, emptyDir: {}}]
---
apiVersion: v1
kind: Pod
metadata: {name: slow}
spec:
  terminationGracePeriodSeconds: 0
  restartPolicy: Never
  containers:
  - {name: c, image: kemudi.local/busybox:1, command: [sh, -c, 'i=0; until [ -e /tmp/stop ]; do i=$((i+1)); echo tick $i; sleep 0.3; done; echo end']}
`)
	k.do(t, "wait", "--for=condition=Ready", "pod/slow", patient)
	follow := k.begin(t, false, k.line("logs", "-f", "slow")...)
	k.do(t, "wait", "--for=jsonpath={.status.phase}=Succeeded", "pod/lines", patient)
	all := "out 1\nout 2\nout 3\nout 4\nout 5\nno-newline"
	trace.Proves(t, "CON-015/logs")
	for _, c := range []struct{ args, want string }{
		{"logs lines -c a", all},
		{"logs lines -c a --tail=2", "out 5\nno-newline"},
		{"logs lines -c e", "err\n"},
		{"logs lines -c a --limit-bytes=10", "out 1\nout "},
		{"logs lines -c init", "first\n"},
		{"logs lines -c b", "from b\n" + strings.Repeat("x", 40000) + "\nend\n"},
		{"logs lines -c a --since=1h --tail=1", "no-newline"},
		{"logs -l app=lines -c init", "first\n"},
	} {
		if got := k.do(t, strings.Fields(c.args)...); got != c.want {
			t.Errorf("%s: got %.200q, want %.200q", c.args, got, c.want)
		}
	}
	trace.Proves(t, "INIT-003") // all of them have written
	k.wants(t, []string{"[pod/lines/a] out 1", "[pod/lines/b] from b", "[pod/lines/init] first"}, "logs", "lines", "--all-containers", "--prefix")
	stamped := k.do(t, "logs", "lines", "-c", "init", "--timestamps")
	when, err := time.Parse(time.RFC3339Nano, strings.Fields(stamped)[0])
	if err != nil || time.Since(when) > time.Hour || !strings.HasSuffix(stamped, " first\n") {
		t.Errorf("stamped line: got %q, %v", stamped, err)
	}
	if got := k.do(t, "logs", "lines", "-c", "init", "--since-time="+time.Now().Add(time.Minute).UTC().Format(time.RFC3339)); got != "" {
		t.Errorf("log since a minute hence: got %q", got)
	}
	if o := k.try(t, "", "logs", "lines"); o.code != 0 || !strings.Contains(o.stderr, "Defaulted container \"a\" out of: a, b, e, init (init)") {
		t.Errorf("logs without a container: got %+v", o)
	}
	if o := k.try(t, "", "logs", "lines", "-c", "a", "--previous"); o.code == 0 || !strings.Contains(o.stderr, "previous terminated container \"a\" in pod \"lines\" not found") {
		t.Errorf("logs of no previous container: got %+v", o)
	}
	follow.sees(t, "tick 3\n")
	k.do(t, "exec", "slow", "--", "touch", "/tmp/stop")
	code, want := follow.exits(t), ""
	for i := range strings.Count(follow.output(), "tick") {
		want += fmt.Sprintf("tick %d\n", i+1)
	}
	if code != 0 || follow.output() != want+"end\n" {
		t.Errorf("followed log: got exit code %d, %q", code, follow.all())
	}
	k.await(t, k.namespace, "crash", func(pod *corev1.Pod) error {
		if err := hasRestarted(1)(pod); err != nil {
			return err
		}
		return isReady(pod)
	})
	wait.Until(t, func() error {
		if got := k.do(t, "logs", "crash"); got != "life x\n" {
			return fmt.Errorf("logs: got %q, want life x", got)
		}
		return nil
	})
	if got := k.do(t, "logs", "crash", "--previous"); got != "life \n" {
		t.Errorf("logs of the previous container: got %q, want life", got)
	}
}

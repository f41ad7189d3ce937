package e2e

import (
	"fmt"
	"slices"
	"strings"
	"syscall"
	"testing"

	corev1 "k8s.io/api/core/v1"

	"github.com/kemudi/kemudi/internal/trace"
	"github.com/kemudi/kemudi/test/wait"
)

// aSet is a StatefulSet with the service that governs it. Its pods answer with their names.
const aSet = `
apiVersion: v1
kind: Service
metadata: {name: nginx}
spec: {clusterIP: None, selector: {app: nginx}, ports: [{port: 8080, name: web}]}
---
apiVersion: apps/v1
kind: StatefulSet
metadata: {name: web}
spec:
  serviceName: nginx
  replicas: 3
  selector: {matchLabels: {app: nginx}}
  template:
    metadata: {labels: {app: nginx}}
    spec:
      terminationGracePeriodSeconds: 1
      containers:
      - {name: nginx, image: "kemudi.local/agnhost:1", args: [netexec], env: [{name: VERSION, value: "1"}]}
`

// TestStatefulSetSurvivesKills runs the documents' StatefulSet in two namespaces and
// kills the server in the middle of its rollouts: each pod keeps its name, host and
// address in the DNS, one is replaced after the other, and no other is touched.
func TestStatefulSetSurvivesKills(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	c.kubectl().do(t, "create", "namespace", "foo")
	k := c.kubectl()
	for _, in := range []kubectl{k.in("default"), k.in("foo")} {
		in.apply(t, aSet)
		in.setRolledOut(t)
	}
	trace.Proves(t, "STS-008", "STS-011", "STS-019", "WHAT-010")
	for i := range 3 {
		pod := fmt.Sprintf("web-%d", i)
		if got, want := k.do(t, "exec", pod, "--", "sh", "-c", "hostname; hostname -f"), fmt.Sprintf("%s\n%s.nginx.default.svc.cluster.local\n", pod, pod); got != want {
			t.Errorf("host name: got %q, want %q", got, want)
		}
	}
	k.lookUp(t, "web-0", append(c.setAnswers(t, "default", "STS-020 STS-021 STS-022 STS-025"), c.setAnswers(t, "foo", "STS-023 STP-004")...))
	bystander := c.containers(t, "foo", "app=nginx")
	for round := range 2 {
		version := fmt.Sprint(round + 2)
		k.do(t, "set", "env", "statefulset/web", "VERSION="+version)
		wait.Until(t, func() error { // the first pods have been replaced
			if n := len(c.ofVersion(t, version)); n <= round {
				return fmt.Errorf("%d pods of version %s", n, version)
			}
			return nil
		})
		replaced := c.ofVersion(t, version)
		before := map[string]string{}
		for _, name := range replaced[1:] { // the lowest of them may just be beginning
			for key, is := range c.containers(t, "default", "statefulset.kubernetes.io/pod-name="+name) {
				before[key] = is
			}
		}
		c.kill(syscall.SIGKILL)
		t.Logf("round %d: killed with %v replaced, ready again after %s", round, replaced, c.serve(t))
		k.setRolledOut(t)
		wait.Until(t, func() error {
			if got := c.ofVersion(t, version); len(got) != 3 {
				return fmt.Errorf("of version %s: got %v, want three pods", version, got)
			}
			return nil
		})
		trace.Proves(t, "STS-045", "STS-046")
		wantSame(t, before, c.containers(t, "default", "app=nginx"))
		wantSame(t, bystander, c.containers(t, "foo", "app=nginx"))
		c.wantNoOrphans(t)
		for _, pod := range c.pods(t, "default", "app=nginx") {
			if pod.Status.ContainerStatuses[0].RestartCount != 0 {
				t.Errorf("pod %s restarted: %s", pod.Name, states(&pod))
			}
		}
		// The names lead to the new pods.
		k.lookUp(t, "web-0", c.setAnswers(t, "default", "STS-017"))
	}
	k.do(t, "scale", "statefulset/web", "--replicas=1")
	k.do(t, "wait", "--for=delete", "pod/web-1", "pod/web-2", patient)
	if pods := c.pods(t, "default", "app=nginx"); len(pods) != 1 || pods[0].Name != "web-0" {
		t.Errorf("got %d pods, the first %s; want web-0", len(pods), pods[0].Name)
	}
	k.do(t, "delete", "statefulset/web", "-n", "foo")
	k.do(t, "delete", "statefulset/web", "service/nginx")
}

// setRolledOut waits for a rollout of the set web.
func (k kubectl) setRolledOut(t *testing.T) {
	t.Helper()
	k.wants(t, []string{"roll out complete: 3 new pods have been updated"}, "rollout", "status", "statefulset/web", patient)
}

// ofVersion are the names of the set's pods that have a version, in order.
func (c *cluster) ofVersion(t *testing.T, version string) (names []string) {
	t.Helper()
	for _, pod := range c.pods(t, "default", "app=nginx") {
		if pod.Spec.Containers[0].Env[0].Value == version {
			names = append(names, pod.Name)
		}
	}
	slices.Sort(names)
	return names
}

// setAnswers are what the DNS says of the set in a namespace: each pod's name leads to
// its address, and that of the service to all of them.
func (c *cluster) setAnswers(t *testing.T, namespace, proves string) (list []answer) {
	t.Helper()
	domain := "nginx." + namespace + ".svc.cluster.local"
	for _, pod := range c.pods(t, namespace, "app=nginx") {
		list = append(list, answer{"a:" + pod.Name + "." + domain, "Address: " + pod.Status.PodIP, proves},
			answer{"a:" + domain, "Address: " + pod.Status.PodIP, proves})
	}
	return list
}

// testDaemonSet reaches a daemon in every way that the documents name, and has it
// restarted, replaced and rolled out.
func testDaemonSet(t *testing.T, c *cluster) {
	k := c.kubectl().in(c.namespace(t))
	k.apply(t, `
apiVersion: apps/v1
kind: DaemonSet
metadata: {name: daemon}
spec:
  selector: {matchLabels: {app: daemon}}
  template:
    metadata: {labels: {app: daemon}}
    spec:
      terminationGracePeriodSeconds: 1
      containers:
      - {name: daemon, image: "kemudi.local/agnhost:1", args: [netexec], env: [{name: VERSION, value: "1"}], ports: [{containerPort: 8080, hostPort: 18080}]}
---
apiVersion: v1
kind: Service
metadata: {name: daemons}
spec: {clusterIP: None, selector: {app: daemon}, ports: [{port: 8080}]}
---
apiVersion: v1
kind: Service
metadata: {name: daemon}
spec: {selector: {app: daemon}, ports: [{port: 80, targetPort: 8080}]}
`)
	out := func() {
		k.wants(t, []string{`daemon set "daemon" successfully rolled out`}, "rollout", "status", "daemonset/daemon", patient)
	}
	only := func() corev1.Pod {
		t.Helper()
		var pods []corev1.Pod
		wait.Until(t, func() error {
			pods = c.pods(t, k.namespace, "app=daemon")
			if len(pods) != 1 || isReady(&pods[0]) != nil {
				return fmt.Errorf("%d pods, want one that is ready", len(pods))
			}
			return nil
		})
		return pods[0]
	}
	out()
	pod := only()
	trace.Proves(t, "DS-001")
	if pod.Spec.NodeName != c.hostname(t) {
		t.Errorf("got a daemon on %q, want on %s", pod.Spec.NodeName, c.hostname(t))
	}
	trace.Proves(t, "DS-035", "DS-037")
	cluster := k.do(t, "get", "service", "daemon", "-o", "jsonpath={.spec.clusterIP}")
	for url, from := range map[string]func(string) (string, error){
		"http://" + machineIP + ":18080/hostname": func(url string) (string, error) { return get(c.neighbour, url) },
		"http://" + cluster + "/hostname":         func(url string) (string, error) { return get(c.host, url) },
	} {
		wait.Until(t, func() error {
			got, err := from(url)
			if err == nil && got != pod.Name {
				err = fmt.Errorf("%s: got %q, want %s", url, got, pod.Name)
			}
			return err
		})
	}
	k.lookUp(t, pod.Name, []answer{{"a:daemons." + k.namespace + ".svc.cluster.local", "Address: " + pod.Status.PodIP, "DS-036"}})
	// A container that ends is started again, in the same pod.
	trace.Proves(t, "DS-010")
	k.try(t, "", "exec", pod.Name, "--", "sh", "-c", "kill 1")
	c.await(t, k.namespace, pod.Name, func(p *corev1.Pod) error {
		if p.UID != pod.UID || len(p.Status.ContainerStatuses) == 0 || p.Status.ContainerStatuses[0].RestartCount == 0 {
			return fmt.Errorf("not restarted: %s", states(p))
		}
		return isReady(p)
	})
	trace.Proves(t, "DS-045")
	k.do(t, "delete", "pod", pod.Name)
	if again := only(); again.UID == pod.UID {
		t.Errorf("got pod %s again, want another", again.Name)
	}
	k.do(t, "set", "env", "daemonset/daemon", "VERSION=2")
	out()
	if got := only().Spec.Containers[0].Env[0].Value; got != "2" {
		t.Errorf("got version %s, want 2", got)
	}
	k.do(t, "delete", "daemonset/daemon", "service/daemon", "service/daemons")
	c.wantNothing(t, k.namespace)
}

// testJobs runs programs to their end: each index of its own, with failures that are
// made up for, and others that are too many.
func testJobs(t *testing.T, c *cluster) {
	k := c.kubectl().in(c.namespace(t))
	k.apply(t, aJob("indexed", "Never", "echo $JOB_COMPLETION_INDEX on $(hostname)", "completionMode: Indexed, completions: 3, parallelism: 2")+
		aJob("again", "Never", "echo tried; exit 7", "backoffLimit: 1")+
		aJob("pi", "Never", "echo 'scale=2000; 4*a(1)' | BC_LINE_LENGTH=0 bc -l", "backoffLimit: 4")+
		aJob("here", "OnFailure", "test -e /data/tried || { touch /data/tried; exit 1; }", "completions: 4, parallelism: 2"))
	trace.Proves(t, "JOB-007", "JOB-009", "JOB-010")
	k.do(t, "wait", "--for=condition=complete", "job/indexed", patient)
	if got := k.do(t, "get", "job", "indexed", "-o", "jsonpath={.status.completedIndexes} {.status.succeeded} {.status.failed}"); got != "0-2 3 " {
		t.Errorf("indexed: got %q, want indexes 0-2 completed", got)
	}
	for i := range 3 {
		pods := k.do(t, "get", "pods", "-l", fmt.Sprintf("job-name=indexed,batch.kubernetes.io/job-completion-index=%d", i), "-o", "jsonpath={.items[*].metadata.name}")
		if got, want := k.do(t, "logs", pods), fmt.Sprintf("%d on indexed-%d\n", i, i); got != want {
			t.Errorf("log of %s: got %q, want %q", pods, got, want)
		}
	}
	k.wants(t, []string{"Completed"}, "get", "pods", "-l", "job-name=indexed")
	k.do(t, "wait", "--for=condition=complete", "job/pi", patient)
	trace.Proves(t, "JOB-006", "WHAT-010")
	if got := strings.TrimSpace(k.do(t, "logs", "job/pi")); !strings.HasPrefix(got, "3.14159265358979323846264338327950288419716939937510") || len(got) != len("3.")+2000 {
		t.Errorf("pi: got %d characters, %.60q...; want 2000 digits of it", len(got), got)
	}
	k.do(t, "wait", "--for=condition=failed", "job/again", patient)
	if got := k.do(t, "get", "job", "again", "-o", `jsonpath={.status.failed} {.status.conditions[?(@.type=="Failed")].reason}`); got != "2 BackoffLimitExceeded" {
		t.Errorf("again: got %q, want it given up after the second failure", got)
	}
	trace.Proves(t, "C-036", "JOB-034")
	k.do(t, "wait", "--for=condition=complete", "job/here", patient)
	pods := c.pods(t, k.namespace, "job-name=here")
	if len(pods) != 4 {
		t.Errorf("here: got %d pods, want four", len(pods))
	}
	for _, pod := range pods {
		if pod.Status.ContainerStatuses[0].RestartCount != 1 {
			t.Errorf("here: pod %s is %s; want its container run twice", pod.Name, states(&pod))
		}
	}
	k.do(t, "delete", "job", "--all")
	c.wantNothing(t, k.namespace)
}

// testJobThatLeads has the one pod of a Job make another, wait for its work and remove it, all with its own credentials.
func testJobThatLeads(t *testing.T, c *cluster) {
	k := c.kubectl().in(c.namespace(t))
	k.do(t, "create", "rolebinding", "lead", "--clusterrole=edit", "--serviceaccount="+k.namespace+":default")
	k.apply(t, `
apiVersion: batch/v1
kind: Job
metadata: {name: lead}
spec:
  backoffLimit: 0
  template:
    spec:
      restartPolicy: Never
      terminationGracePeriodSeconds: 0
      containers:
      - name: lead
        image: kemudi.local/agnhost:1
        command: [sh, -ec]
        args:
        - |
          cd /var/run/secrets/kubernetes.io/serviceaccount
          pods=https://kubernetes.default.svc/api/v1/namespaces/$(cat namespace)/pods
          call() { curl -s -S -f -k -H "Authorization: Bearer $(cat token)" "$@"; }
          until call $pods > /dev/null; do sleep 0.2; done
          call -X POST -H 'Content-Type: application/json' -d '{"metadata":{"name":"worker","labels":{"made":"by-lead"}},"spec":{"restartPolicy":"Never","terminationGracePeriodSeconds":0,"containers":[{"name":"c","image":"kemudi.local/busybox:1","command":["echo","work"]}]}}' $pods > /dev/null
          until call $pods/worker | grep -q '"phase": *"Succeeded"'; do sleep 0.2; done
          echo "worker is done"
          call -X DELETE $pods/worker > /dev/null
`)
	k.do(t, "wait", "--for=condition=complete", "job/lead", patient)
	trace.Proves(t, "JOB-071")
	if got := k.do(t, "logs", "job/lead"); !strings.HasSuffix(got, "worker is done\n") {
		t.Errorf("got %q, want the worker to have been done", got)
	}
	if pods := c.pods(t, k.namespace, "made=by-lead"); len(pods) != 0 {
		t.Errorf("got %d workers, want those of the lead removed", len(pods))
	}
	k.do(t, "delete", "job", "lead")
	c.wantNothing(t, k.namespace)
}

// testLocalRestarts ends the containers of controllers' pods: the node starts them
// again, and the controllers make no pod.
func testLocalRestarts(t *testing.T, c *cluster) {
	k := c.kubectl().in(c.namespace(t))
	for _, tc := range []struct{ kind, version, selector, proves string }{
		{"ReplicaSet", "apps/v1", "{matchLabels: {app: replicaset}}", "RS-047"},
		{"ReplicationController", "v1", "{app: replicationcontroller}", "RC-017"},
	} {
		name := strings.ToLower(tc.kind)
		k.apply(t, fmt.Sprintf(`
apiVersion: %s
kind: %s
metadata: {name: %[3]s}
spec:
  replicas: 1
  selector: %s
  template:
    metadata: {labels: {app: %[3]s}}
    spec:
      terminationGracePeriodSeconds: 0
      containers: [{name: c, image: "kemudi.local/agnhost:1", args: [netexec], readinessProbe: {httpGet: {path: /healthz, port: 8080}, periodSeconds: 1}}]
`, tc.version, tc.kind, name, tc.selector))
		k.do(t, "wait", "--for=jsonpath={.status.readyReplicas}=1", name+"/"+name, patient)
		pod := c.pods(t, k.namespace, "app="+name)[0]
		k.try(t, "", "exec", pod.Name, "--", "sh", "-c", "kill 1")
		c.await(t, k.namespace, pod.Name, func(p *corev1.Pod) error {
			if p.Status.ContainerStatuses[0].RestartCount == 0 {
				return fmt.Errorf("not restarted: %s", states(p))
			}
			return isReady(p)
		})
		trace.Proves(t, tc.proves)
		if pods := c.pods(t, k.namespace, "app="+name); len(pods) != 1 || pods[0].UID != pod.UID {
			t.Errorf("%s: got %d pods, the first %s; want %s alone, restarted", tc.kind, len(pods), pods[0].Name, pod.Name)
		}
		k.do(t, "delete", name+"/"+name)
	}
	c.wantNothing(t, k.namespace)
}

// aJob runs a command; spec is what there is besides.
func aJob(name, restart, command, spec string) string {
	return fmt.Sprintf(`---
apiVersion: batch/v1
kind: Job
metadata: {name: %s}
spec: {%s, template: {spec: {restartPolicy: %s, terminationGracePeriodSeconds: 0, volumes: [{name: data, emptyDir: {}}],
  containers: [{name: c, image: "kemudi.local/busybox:1", volumeMounts: [{name: data, mountPath: /data}], command: [sh, -c, %q]}]}}}
`, name, spec, restart, command)
}

// testCronJob waits for the next minute, and runs the same by hand.
func testCronJob(t *testing.T, c *cluster) {
	k := c.kubectl().in(c.namespace(t))
	k.apply(t, `
apiVersion: batch/v1
kind: CronJob
metadata: {name: tick}
spec:
  schedule: "* * * * *"
  successfulJobsHistoryLimit: 2 # that made by hand stays, whenever the minute is over
  jobTemplate: {spec: {template: {spec: {restartPolicy: OnFailure, terminationGracePeriodSeconds: 0,
    containers: [{name: c, image: "kemudi.local/busybox:1", command: [echo, tick]}]}}}}
`)
	k.do(t, "create", "job", "by-hand", "--from=cronjob/tick")
	k.do(t, "wait", "--for=condition=complete", "job/by-hand", patient)
	if got := k.do(t, "logs", "job/by-hand"); got != "tick\n" {
		t.Errorf("by hand: got %q, want tick", got)
	}
	trace.Proves(t, "CJ-002")
	var job string
	wait.Until(t, func() error {
		for _, name := range strings.Fields(k.do(t, "get", "jobs", "-o", "jsonpath={range .items[?(@.status.succeeded==1)]}{.metadata.name} {end}")) {
			if strings.HasPrefix(name, "tick-") {
				job = name
				return nil
			}
		}
		return fmt.Errorf("no job of the schedule has succeeded")
	})
	if got := k.do(t, "logs", "job/"+job); got != "tick\n" {
		t.Errorf("%s: got %q, want tick", job, got)
	}
	wait.Until(t, func() error { // noted a moment later
		if got := k.do(t, "get", "cronjob", "tick", "-o", "jsonpath={.status.lastSuccessfulTime}"); got == "" {
			return fmt.Errorf("the success is not noted")
		}
		return nil
	})
	k.do(t, "delete", "cronjob", "tick")
	c.wantNothing(t, k.namespace)
}

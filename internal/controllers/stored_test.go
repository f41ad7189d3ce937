package controllers_test

import (
	"bytes"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/yaml"

	"github.com/kemudi/kemudi/internal/api"
	"github.com/kemudi/kemudi/internal/api/core"
	"github.com/kemudi/kemudi/internal/client"
	"github.com/kemudi/kemudi/internal/plane"
	"github.com/kemudi/kemudi/internal/resource"
	"github.com/kemudi/kemudi/internal/sim"
	"github.com/kemudi/kemudi/internal/store"
	"github.com/kemudi/kemudi/internal/store/mem"
	"github.com/kemudi/kemudi/internal/watchcache"
)

// stored are objects that no validation would let through, as another program or an older
// version may have left them, and what is said of each in its events; nothing: no
// controller has to do with what is wrong.
var stored = []struct{ name, text, event string }{
	{"rs-mismatch", "{apiVersion: apps/v1, kind: ReplicaSet, META, spec: {replicas: 3, selector: {matchLabels: {app: a}}, template: {metadata: {labels: {app: b}}, spec: POD}}}", "InvalidSelector the selector does not match the labels of the template"},
	{"rs-operator", "{apiVersion: apps/v1, kind: ReplicaSet, META, spec: {replicas: 3, selector: {matchExpressions: [{key: app, operator: Near}]}, template: {metadata: {labels: {app: b}}, spec: POD}}}", `InvalidSelector invalid label selector: "Near" is not a valid label selector operator`},
	{"rs-none", "{apiVersion: apps/v1, kind: ReplicaSet, META, spec: {template: {metadata: {labels: {app: b}}, spec: POD}}}", "InvalidSelector the selector does not match the labels of the template"},
	{"rs-template", "{apiVersion: apps/v1, kind: ReplicaSet, META, spec: {replicas: 2, selector: {matchLabels: {app: t}}, template: {metadata: {labels: {app: t}}}}}", "FailedCreate Error creating: "},
	{"rs-negative", "{apiVersion: apps/v1, kind: ReplicaSet, META, spec: {replicas: -2, selector: {matchLabels: {app: n}}, template: {metadata: {labels: {app: n}}, spec: POD}}}", ""},
	{"rc-mismatch", "{apiVersion: v1, kind: ReplicationController, META, spec: {replicas: 3, selector: {app: a}, template: {metadata: {labels: {app: b}}, spec: POD}}}", "InvalidSelector the selector does not match the labels of the template"},
	{"rc-none", "{apiVersion: v1, kind: ReplicationController, META, spec: {replicas: 3, selector: {app: a}}}", "InvalidSelector the selector does not match the labels of the template"},
	{"deploy-mismatch", "{apiVersion: apps/v1, kind: Deployment, META, spec: {replicas: 3, selector: {matchLabels: {app: a}}, template: {metadata: {labels: {app: b}}, spec: POD}}}", "InvalidSelector the selector does not match the labels of the template"},
	{"deploy-surge", "{apiVersion: apps/v1, kind: Deployment, META, spec: {replicas: 3, strategy: {type: RollingUpdate, rollingUpdate: {maxSurge: lots, maxUnavailable: 0}}, selector: {matchLabels: {app: ds}}, template: {metadata: {labels: {app: ds}}, spec: POD}}}", ""},
	{"deploy-all", "{apiVersion: apps/v1, kind: Deployment, META, spec: {selector: {}, template: {spec: POD}}}", "SelectingAll This deployment is selecting all pods"},
	{"sts-mismatch", "{apiVersion: apps/v1, kind: StatefulSet, META, spec: {replicas: 3, selector: {matchLabels: {app: a}}, template: {metadata: {labels: {app: b}}, spec: POD}}}", "InvalidSelector the selector does not match the labels of the template"},
	{"sts-partition", "{apiVersion: apps/v1, kind: StatefulSet, META, spec: {replicas: 1, updateStrategy: {type: RollingUpdate, rollingUpdate: {partition: -5, maxUnavailable: none}}, selector: {matchLabels: {app: p}}, template: {metadata: {labels: {app: p}}, spec: POD}}}", ""},
	{"ds-mismatch", "{apiVersion: apps/v1, kind: DaemonSet, META, spec: {selector: {matchLabels: {app: a}}, template: {metadata: {labels: {app: b}}, spec: POD}}}", "InvalidSelector the selector does not match the labels of the template"},
	{"job-mismatch", "{apiVersion: batch/v1, kind: Job, META, spec: {parallelism: 2, selector: {matchLabels: {app: a}}, template: {metadata: {labels: {app: b}}, spec: POD}}}", "InvalidSelector the selector does not match the labels of the template"},
	{"job-none", "{apiVersion: batch/v1, kind: Job, META, spec: {template: {metadata: {labels: {app: b}}, spec: POD}}}", "InvalidSelector the selector does not match the labels of the template"},
	{"job-numbers", "{apiVersion: batch/v1, kind: Job, META, spec: {parallelism: -1, completions: -3, backoffLimit: -1, completionMode: Sideways, selector: {matchLabels: {app: j}}, template: {metadata: {labels: {app: j}}, spec: POD}}}", ""},
	{"cron-schedule", "{apiVersion: batch/v1, kind: CronJob, META, spec: {schedule: every day, jobTemplate: {spec: {template: {spec: POD}}}}}", `UnparseableSchedule unparseable schedule: "every day"`},
	{"cron-zone", "{apiVersion: batch/v1, kind: CronJob, META, spec: {schedule: '* * * * *', timeZone: Nowhere/Else, jobTemplate: {spec: {template: {spec: POD}}}}}", `UnknownTimeZone invalid timeZone: "Nowhere/Else"`},
	{"cron-never", "{apiVersion: batch/v1, kind: CronJob, META, spec: {schedule: '0 0 30 2 *', jobTemplate: {spec: {template: {spec: POD}}}}}", ""},
	{"cron-template", "{apiVersion: batch/v1, kind: CronJob, META, spec: {schedule: '* * * * *', concurrencyPolicy: Sometimes, jobTemplate: {spec: {}}}}", "FailedCreate Error creating job: "},
	{"pdb-selector", "{apiVersion: policy/v1, kind: PodDisruptionBudget, META, spec: {minAvailable: 1, selector: {matchExpressions: [{key: app, operator: Near}]}}}", ""},
	{"pdb-both", "{apiVersion: policy/v1, kind: PodDisruptionBudget, META, spec: {minAvailable: much, maxUnavailable: 1, selector: {matchLabels: {app: b}}}}", ""},
	{"hpa-empty", "{apiVersion: autoscaling/v2, kind: HorizontalPodAutoscaler, META, spec: {maxReplicas: -1, scaleTargetRef: {kind: ReplicaSet, apiVersion: apps/v1, name: healthy}, metrics: [{type: Resource}, {type: Weather}]}}", "FailedGetScale"},
	{"quota-scope", "{apiVersion: v1, kind: ResourceQuota, META, spec: {hard: {pods: '1000'}, scopes: [Sideways]}}", ""},
	{"service-selector", "{apiVersion: v1, kind: Service, META, spec: {clusterIP: None, selector: {'a b': '!'}, ports: [{port: 0}]}}", ""},
}

// healthy are objects like those, with nothing wrong, and how many pods they make.
var healthy = map[string]string{
	"rs":     "{apiVersion: apps/v1, kind: ReplicaSet, META, spec: {replicas: 2, selector: {matchLabels: {app: rs}}, template: {metadata: {labels: {app: rs}}, spec: POD}}}",
	"rc":     "{apiVersion: v1, kind: ReplicationController, META, spec: {replicas: 2, selector: {app: rc}, template: {metadata: {labels: {app: rc}}, spec: POD}}}",
	"deploy": "{apiVersion: apps/v1, kind: Deployment, META, spec: {replicas: 2, selector: {matchLabels: {app: deploy}}, template: {metadata: {labels: {app: deploy}}, spec: POD}}}",
	"job":    "{apiVersion: batch/v1, kind: Job, META, spec: {parallelism: 2, template: {metadata: {labels: {app: job}}, spec: POD}}}",
}

// object reads an object whose text leaves out what all have.
func object(t *testing.T, name, text string) (*resource.Def, resource.Object) {
	t.Helper()
	text = strings.NewReplacer(
		"META", `metadata: {name: NAME, namespace: default, uid: uid-of-NAME, creationTimestamp: "2000-01-01T00:00:00Z"}`,
		"POD", "{restartPolicy: RESTART, containers: [{name: c, image: i}]}",
	).Replace(text)
	restart := "Always"
	if strings.Contains(text, "batch/v1") {
		restart = "Never"
	}
	text = strings.NewReplacer("NAME", name, "RESTART", restart).Replace(text)
	var id metav1.TypeMeta
	if err := yaml.Unmarshal([]byte(text), &id); err != nil {
		t.Fatalf("%s: %v", name, err)
	}
	for _, def := range api.All() {
		if def.Kind == id.Kind && def.GVK().GroupVersion().String() == id.APIVersion {
			obj := def.New()
			if err := yaml.UnmarshalStrict([]byte(text), obj); err != nil {
				t.Fatalf("%s: %v", name, err)
			}
			return def, obj
		}
	}
	t.Fatalf("%s: there is no %s of %s", name, id.Kind, id.APIVersion)
	return nil, nil
}

// TestStoredObjectsThatNoValidationWouldPassStopNothing runs all controllers over a store of
// such objects: what is wrong is said, no pods are made without end, nothing panics, and
// objects that are as they should be are served as ever.
func TestStoredObjectsThatNoValidationWouldPassStopNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		st := mem.New(mem.Options{})
		for _, c := range stored {
			def, obj := object(t, c.name, c.text)
			value, err := watchcache.Encode(def, obj)
			if err != nil {
				t.Fatalf("%s: %v", c.name, err)
			}
			if _, err := st.Txn(t.Context(), store.Txn{Ops: []store.Op{{Key: def.Key("default", c.name), Value: value}}}); err != nil {
				t.Fatal(err)
			}
		}
		var log lines
		p := sim.Plane(t, plane.Options{Store: st, Logger: slog.New(slog.NewTextHandler(&log, nil))})
		node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "node"}} // that nothing fits: DaemonSets have somewhere to be
		if _, err := client.For(p.Admin(), core.Nodes).Create(t.Context(), node); err != nil {
			t.Fatal(err)
		}
		for name, text := range healthy {
			def, obj := object(t, name, text)
			obj.SetUID("")
			if _, err := p.Admin().Do(t.Context(), &client.Request{Verb: "create", Def: def, Namespace: "default", Object: obj}); err != nil {
				t.Fatalf("%s: %v", name, err)
			}
		}
		pods := func() map[string]int {
			n := map[string]int{}
			for _, p := range client.Cached(p.Admin(), core.Pods, "").List("default", nil) {
				n[p.Labels["app"]]++
			}
			return n
		}
		time.Sleep(5 * time.Minute)
		before := pods()
		for name := range healthy {
			if before[name] != 2 {
				t.Errorf("%s: got %d pods, want 2", name, before[name])
			}
		}
		time.Sleep(30 * time.Minute)
		if got, want := fmt.Sprint(pods()), fmt.Sprint(before); got != want || len(before) > 10 {
			t.Errorf("pods by label: got %s after a while, want %s as before, and no more", got, want)
		}
		said := map[string][]string{}
		for _, e := range client.Cached(p.Admin(), core.Events, "").List("default", nil) {
			said[e.InvolvedObject.Name] = append(said[e.InvolvedObject.Name], e.Reason+" "+e.Message)
		}
		for _, c := range stored {
			if !slices.ContainsFunc(said[c.name], func(s string) bool { return strings.HasPrefix(s, c.event) }) && c.event != "" {
				t.Errorf("%s: got events %q, want %q", c.name, said[c.name], c.event)
			}
		}
		for line := range strings.SplitSeq(log.String(), "\n") {
			if what, stack, ok := strings.Cut(line, "goroutine "); ok {
				t.Errorf("log: %s in %.500s", what, stack)
			}
		}
	})
}

// lines is a log that many may write to.
type lines struct {
	mu sync.Mutex
	bytes.Buffer
}

func (l *lines) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.Buffer.Write(p)
}

func (l *lines) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.Buffer.String()
}

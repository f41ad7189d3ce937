package deployment

import (
	"bufio"
	"bytes"
	"fmt"
	"math/rand/v2"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/utils/ptr"

	"github.com/kemudi/kemudi/internal/trace"
)

func deploymentOf(replicas int32, surge, unavailable string) *appsv1.Deployment {
	d := &appsv1.Deployment{}
	d.Spec.Replicas = &replicas
	d.Spec.Strategy.Type = appsv1.RollingUpdateDeploymentStrategyType
	d.Spec.Strategy.RollingUpdate = &appsv1.RollingUpdateDeployment{
		MaxSurge: ptr.To(intstr.Parse(surge)), MaxUnavailable: ptr.To(intstr.Parse(unavailable)),
	}
	return d
}

func setOf(name string, age int, replicas int32) *appsv1.ReplicaSet {
	rs := &appsv1.ReplicaSet{}
	rs.Name, rs.Annotations = name, map[string]string{}
	rs.CreationTimestamp = metav1.NewTime(time.Unix(int64(1000-age), 0))
	rs.Spec.Replicas = &replicas
	rs.Status.Replicas, rs.Status.AvailableReplicas = replicas, replicas
	return rs
}

// TestNextStepsOfARollout runs the blocks of testdata/plan/steps.txt.
func TestNextStepsOfARollout(t *testing.T) {
	trace.Proves(t, "DEP-031", "DEP-069", "DEP-102", "DEP-103")
	const file = "testdata/plan/steps.txt"
	data, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	r, line := &rollout{}, 0
	for scan := bufio.NewScanner(bytes.NewReader(data)); scan.Scan(); {
		line++
		words := strings.Fields(scan.Text())
		if len(words) == 0 || strings.HasPrefix(words[0], "#") {
			continue
		}
		want := strings.TrimSpace(strings.TrimPrefix(scan.Text(), words[0]))
		switch words[0] {
		case "deployment":
			o := settings(t, words[1:])
			r = &rollout{d: deploymentOf(int32(number(t, o["replicas"])), o["surge"], o["unavailable"])}
		case "old", "new":
			readSet(t, r, words)
		case "step:":
			if got := show(r.rollingStep()); got != want {
				t.Errorf("%s:%d: got %q, want %q", file, line, got, want)
			}
		case "scale:":
			if got := show(r.scaleStep()); got != want {
				t.Errorf("%s:%d: got %q, want %q", file, line, got, want)
			}
		default:
			t.Fatalf("%s:%d: what is %q?", file, line, words[0])
		}
	}
}

func readSet(t *testing.T, r *rollout, words []string) {
	t.Helper()
	o, replicas := settings(t, words[2:]), int32(number(t, words[1]))
	name := "new"
	if words[0] == "old" {
		name = fmt.Sprintf("old%d", len(r.old)+1)
	}
	rs := setOf(name, 100-len(r.old), replicas)
	if v, ok := o["there"]; ok {
		rs.Status.Replicas = int32(number(t, v))
		rs.Status.AvailableReplicas = rs.Status.Replicas
	}
	if v, ok := o["available"]; ok {
		rs.Status.AvailableReplicas = int32(number(t, v))
	}
	if o["behind"] != "" {
		rs.Generation = rs.Status.ObservedGeneration + 1
	}
	if v, ok := o["for"]; ok {
		rs.Annotations[desiredAnnotation], rs.Annotations[maxAnnotation] = v, o["max"]
	}
	if words[0] == "old" {
		r.old = append(r.old, rs)
	} else {
		r.new = rs
	}
}

func settings(t *testing.T, words []string) map[string]string {
	t.Helper()
	o := map[string]string{}
	for _, w := range words {
		k, v, ok := strings.Cut(w, "=")
		if !ok {
			t.Fatalf("%q is no setting", w)
		}
		o[k] = v
	}
	return o
}

func number(t *testing.T, s string) int {
	t.Helper()
	n, err := strconv.Atoi(s)
	if err != nil {
		t.Fatal(err)
	}
	return n
}

func show(steps []resize) string {
	var out []string
	for _, s := range steps {
		out = append(out, fmt.Sprintf("%s %d->%d", s.rs.Name, *s.rs.Spec.Replicas, s.to))
	}
	slices.Sort(out)
	if len(out) == 0 {
		return "nothing"
	}
	return strings.Join(out, ", ")
}

// TestRolloutsKeepTheirLimitsAndEnd plays random rollouts: sets follow slowly,
// pods become available or fail, templates change in the middle. At every moment
// no more pods are there than the surge allows, and as soon as enough were
// available, never too few are; in the end only the new set has pods.
func TestRolloutsKeepTheirLimitsAndEnd(t *testing.T) {
	trace.Proves(t, "DEP-029", "DEP-030", "DEP-031", "DEP-040")
	full, scarce := 0, 0
	for range 2000 {
		seed := rand.Uint64()
		most, least, err := playRollout(rand.New(rand.NewPCG(seed, 0)))
		if err != nil {
			t.Fatalf("seed %d: %v", seed, err)
		}
		full, scarce = full+most, scarce+least
	}
	if full < 1000 || scarce < 1000 {
		t.Errorf("2000 rollouts went %d times to the limit of the surge and %d times to that of what is available, want 1000 each", full, scarce)
	}
}

// playRollout also tells in how many moments as many pods were there, and as few
// available, as may be.
func playRollout(rng *rand.Rand) (most, least int, err error) {
	want := 1 + rng.Int32N(20)
	d := deploymentOf(want, strconv.Itoa(rng.IntN(6)), strconv.Itoa(rng.IntN(6)))
	surge, unavailable := limits(d)
	r := &rollout{d: d, new: setOf("0", 1000, want)}
	followers := map[*appsv1.ReplicaSet]*follower{r.new: {there: want, able: want, wanted: want}}
	changes := 1 + rng.IntN(3)
	for moment := range 20000 {
		if moment%50 == 0 && changes > 0 { // a new template
			changes--
			r.old = append(r.old, r.new)
			r.new = setOf(strconv.Itoa(moment+1), 999-moment, 0)
			followers[r.new] = &follower{}
		}
		if rng.IntN(3) == 0 {
			for _, s := range r.rollingStep() {
				s.rs.Spec.Replicas = &s.to
				s.rs.Generation++
			}
		}
		there, able := int32(0), int32(0)
		for _, rs := range r.all() {
			f := followers[rs]
			f.follow(rng, rs)
			there += f.there
			able += f.able
		}
		if there > want+surge || able < want-unavailable {
			return 0, 0, fmt.Errorf("%d replicas, surge %d, unavailable %d: got %d there and %d available", want, surge, unavailable, there, able)
		}
		if surge > 0 && there == want+surge {
			most++
		}
		if unavailable > 0 && able == want-unavailable {
			least++
		}
		if changes == 0 && specTotal(r.old) == 0 && *r.new.Spec.Replicas == want && able == want && there == want {
			return most, least, nil
		}
	}
	return 0, 0, fmt.Errorf("%d replicas, surge %d, unavailable %d: the rollout does not end", want, surge, unavailable)
}

// follower is a set's controller with its pods. It acts by the size that it has seen last,
// and can report only when that is the newest.
type follower struct{ there, able, wanted int32 }

// follow lets it and the nodes work a little: a pod too many goes (one that does not
// serve first), a missing one is made, one becomes available.
func (f *follower) follow(rng *rand.Rand, rs *appsv1.ReplicaSet) {
	if rng.IntN(2) == 0 {
		f.wanted = *rs.Spec.Replicas
		rs.Status.Replicas, rs.Status.AvailableReplicas, rs.Status.ObservedGeneration = f.there, f.able, rs.Generation
	}
	switch {
	case rng.IntN(2) == 0:
	case f.there > f.wanted:
		f.there--
		f.able = min(f.able, f.there)
	case f.there < f.wanted:
		f.there++
	case f.able < f.there:
		f.able++
	}
}

package simulate_test

import (
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/rogpeppe/go-internal/txtar"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/yaml"

	"github.com/kemudi/kemudi/internal/simulate"
	"github.com/kemudi/kemudi/internal/texttest"
)

// TestQuestionsAboutAClusterAreAnsweredByACopy reads clusters from testdata, and what is asked about
// them: a pod (fit) or a node (drain).
func TestQuestionsAboutAClusterAreAnsweredByACopy(t *testing.T) {
	texttest.Run(t, "testdata/*.txt", func(t *testing.T, _, text string) string {
		archive := txtar.Parse([]byte(text))
		var answer any
		synctest.Test(t, func(t *testing.T) {
			var objects []simulate.Object
			var pod *corev1.Pod
			node := ""
			for _, f := range archive.Files {
				var err error
				switch f.Name {
				case "cluster":
					objects, err = simulate.ReadObjects(f.Data)
				case "fit":
					pod = &corev1.Pod{}
					err = yaml.UnmarshalStrict(f.Data, pod)
				case "drain":
					node = strings.TrimSpace(string(f.Data))
				}
				if err != nil {
					t.Fatal(err)
				}
			}
			var err error
			if pod != nil {
				answer, err = simulate.Fit(t.Context(), objects, pod, 1000)
			} else {
				answer, err = simulate.Drain(t.Context(), objects, node, 5*time.Second)
			}
			if err != nil {
				t.Fatal(err)
			}
		})
		out, err := yaml.Marshal(answer)
		if err != nil {
			t.Fatal(err)
		}
		last := len(archive.Files) - 1
		if archive.Files[last].Name != "answer" {
			t.Fatalf("the last file is %s, want the answer", archive.Files[last].Name)
		}
		archive.Files[last].Data = out
		return string(txtar.Format(archive))
	})
}

// TestPodsWhoseClaimsAreOfNothingThatThereIsDoNotFit at all: the scheduler would wait for it.
func TestPodsWhoseClaimsAreOfNothingThatThereIsDoNotFit(t *testing.T) {
	claim := corev1.PodResourceClaim{Name: "device", ResourceClaimName: ptr.To("none")}
	pod := &corev1.Pod{Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "c", Image: "i"}}, ResourceClaims: []corev1.PodResourceClaim{claim}}}
	_, err := simulate.Fit(t.Context(), nil, pod, 1)
	if want := `claim device of the pod: the cluster has no ResourceClaim "none" in namespace default`; err == nil || err.Error() != want {
		t.Errorf("got %v, want %s", err, want)
	}
	pod.Spec.ResourceClaims[0] = corev1.PodResourceClaim{Name: "device", ResourceClaimTemplateName: ptr.To("none")}
	_, err = simulate.Fit(t.Context(), nil, pod, 1)
	if want := `claim device of the pod: the cluster has no ResourceClaimTemplate "none" in namespace default`; err == nil || err.Error() != want {
		t.Errorf("got %v, want %s", err, want)
	}
}

func TestObjectsOfOtherKindsAreLeftOut(t *testing.T) {
	objects, err := simulate.ReadObjects([]byte("apiVersion: v1\nkind: Secret\nmetadata: {name: s}\n---\napiVersion: v1\nkind: List\nitems:\n- {apiVersion: v1, kind: Node, metadata: {name: node}}\n- {apiVersion: example.com/v1, kind: Thing, metadata: {name: t}}\n"))
	if err != nil || len(objects) != 1 || objects[0].Object.GetName() != "node" {
		t.Errorf("got %v, %v, want the node", objects, err)
	}
	if _, err := simulate.ReadObjects([]byte("a: [")); err == nil {
		t.Error("got no error of what is no YAML")
	}
}

package workload

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
)

func template(image string) *corev1.PodTemplateSpec {
	return &corev1.PodTemplateSpec{
		ObjectMeta: metav1.ObjectMeta{Labels: map[string]string{"app": "web"}},
		Spec:       corev1.PodSpec{Containers: []corev1.Container{{Name: "c", Image: image}}},
	}
}

// revisions reads "a1 b2": revisions called a and b, numbered 1 and 2, of
// templates whose images are a and b. What follows a slash is the name.
func revisions(t *testing.T, text string) (all []*appsv1.ControllerRevision) {
	t.Helper()
	for word := range strings.FieldsSeq(text) {
		word, name, named := strings.Cut(word, "/")
		if !named {
			name = word[:1]
		}
		data, err := patchOf(template(word[:1]))
		if err != nil {
			t.Fatal(err)
		}
		rev := &appsv1.ControllerRevision{ObjectMeta: metav1.ObjectMeta{Name: name}, Data: runtime.RawExtension{Raw: data}}
		if _, err := fmt.Sscan(word[1:], &rev.Revision); err != nil {
			t.Fatal(err)
		}
		all = append(all, rev)
	}
	return all
}

func names(revs []*appsv1.ControllerRevision) string {
	var out []string
	for _, rev := range revs {
		out = append(out, rev.Name)
	}
	return strings.Join(out, " ")
}

func TestRevisionOfTheTemplateIsFoundByWhatItHolds(t *testing.T) {
	for _, tc := range []struct {
		name, all, image, present, old string
	}{
		{"there is none", "", "a", "", ""},
		{"only others", "b2 a1", "c", "", "a b"},
		{"the newest", "a1 b2", "b", "b", "a"},
		{"an older one that returns", "a1 b2 c3", "b", "b", "a c"},
		{"of two that are the same, the newer", "a1 a2/again b3", "a", "again", "a b"},
		{"by number, not by name or order", "c1 a10 b9", "x", "", "c b a"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			r := arrange(revisions(t, tc.all), func(rev *appsv1.ControllerRevision) bool { return sameData(rev, nil, template(tc.image)) })
			present := ""
			if r.Present != nil {
				present = r.Present.Name
			}
			if present != tc.present || names(r.Old) != tc.old {
				t.Errorf("%s, image %s: got %q and old %q, want %q and %q", tc.all, tc.image, present, names(r.Old), tc.present, tc.old)
			}
		})
	}
}

func TestRevisionIsTheSameHoweverItsPatchIsWritten(t *testing.T) {
	rev := &appsv1.ControllerRevision{Data: runtime.RawExtension{Raw: []byte(
		`{"spec": {"template": {"$patch": "replace", "spec": {"containers": [{"resources": {}, "image": "a", "name": "c"}]}, "metadata": {"labels": {"app": "web"}}}}}`)}}
	if !sameData(rev, nil, template("a")) {
		t.Errorf("%s: got another template than image a", rev.Data.Raw)
	}
	if sameData(rev, nil, template("b")) {
		t.Errorf("%s: got the template of image b", rev.Data.Raw)
	}
}

func TestPatchOfARevisionReplacesTheTemplate(t *testing.T) {
	data, err := patchOf(template("a"))
	if err != nil {
		t.Fatal(err)
	}
	want := `{"spec":{"template":{"$patch":"replace","metadata":{"labels":{"app":"web"}},"spec":{"containers":[{"image":"a","name":"c","resources":{}}]}}}}`
	if string(data) != want {
		t.Errorf("got %s\nwant %s", data, want)
	}
}

func TestOldRevisionsBeyondTheLimitGoUnlessPodsHaveThem(t *testing.T) {
	for _, tc := range []struct {
		name, old, live string
		limit           int32
		want            string
	}{
		{"within the limit", "a1 b2", "", 2, ""},
		{"the oldest go", "a1 b2 c3 d4", "", 2, "a b"},
		{"live ones stay and do not count", "a1 b2 c3 d4", "a", 2, "b"},
		{"none is kept", "a1 b2 c3", "b", 0, "a c"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			old := revisions(t, tc.old)
			got := expired(old, tc.limit, func(rev *appsv1.ControllerRevision) bool {
				return slices.Contains(strings.Fields(tc.live), rev.Name)
			})
			if names(got) != tc.want || names(old) != names(revisions(t, tc.old)) {
				t.Errorf("%s, limit %d, live %q: got %q (of %s), want %q", tc.old, tc.limit, tc.live, names(got), names(old), tc.want)
			}
		})
	}
}

func TestNameOfARevisionIsItsOwnersAndAHash(t *testing.T) {
	hash, err := TemplateHash(template("a"), nil)
	if err != nil {
		t.Fatal(err)
	}
	if hash == "" || strings.Trim(hash, "bcdfghjklmnpqrstvwxz2456789") != "" {
		t.Errorf("got hash %q, want letters and digits that spell no words", hash)
	}
	if other, _ := TemplateHash(template("a"), new(int32)); other == hash {
		t.Errorf("got %q after a collision too", other)
	}
	if got := revisionName("web", hash); got != "web-"+hash {
		t.Errorf("got %s, want web-%s", got, hash)
	}
	if got := revisionName(strings.Repeat("x", 253), hash); len(got) != 223+1+len(hash) {
		t.Errorf("got %d characters for the longest owner, want what objects may be called", len(got))
	}
}

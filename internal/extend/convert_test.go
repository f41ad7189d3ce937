package extend

import (
	"context"
	"encoding/json"
	"errors"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	apischema "k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/kemudi/kemudi/internal/custom"
	"github.com/kemudi/kemudi/internal/hook"
)

// answering is a webhook that answers with a response, in which UID stands for the request's, or is refused.
type answering struct {
	response string
	refusal  error
}

func (a answering) Post(_ context.Context, _ hook.Config, in, out any) error {
	if a.refusal != nil {
		return a.refusal
	}
	review := in.(*apiextensionsv1.ConversionReview)
	doc := `{"apiVersion":"apiextensions.k8s.io/v1","kind":"ConversionReview","response":` + a.response + `}`
	return json.Unmarshal([]byte(strings.ReplaceAll(doc, "UID", string(review.Request.UID))), out)
}

func TestFailuresOfConversionAreToldAsTheyAre(t *testing.T) {
	crd := &apiextensionsv1.CustomResourceDefinition{ObjectMeta: metav1.ObjectMeta{Name: "things.example.com"}}
	crd.Spec.Group = "example.com"
	crd.Spec.Conversion = &apiextensionsv1.CustomResourceConversion{Webhook: &apiextensionsv1.WebhookConversion{ConversionReviewVersions: []string{"v1"}}}
	const of = "conversion webhook for example.com/v1, Kind=Thing "
	success := func(object string) answering {
		return answering{response: `{"uid":"UID","result":{"status":"Success"},"convertedObjects":[` + object + `]}`}
	}
	v2 := func(metadata string) answering {
		return success(`{"apiVersion":"example.com/v2","kind":"Thing","metadata":` + metadata + `}`)
	}
	for _, q := range []struct {
		name   string
		from   answering
		want   string // empty: it succeeds
		counts string
	}{
		{"done", v2(`{"name":"a","uid":"u","labels":{"b":"c"}}`), "", ""},
		{"refused", answering{refusal: apierrors.NewNotFound(apischema.GroupResource{Resource: "hooks"}, "x")}, of + `failed: hooks "x" not found`, notCalled},
		{"no response", answering{response: `null`}, of + "failed: no response provided", malformed},
		{"another's response", answering{response: `{"uid":"z","result":{"status":"Success"}}`}, of + `failed: expected response.uid="`, malformed},
		{"failed", answering{response: `{"uid":"UID","result":{"status":"Failure","message":"too old"}}`}, of + "failed: too old", malformed},
		{"failed without a word", answering{response: `{"uid":"UID","result":{}}`}, of + "failed: response.result.status was '', not 'Success'", malformed},
		{"too few", success(``), of + "returned 0 objects, expected 1", partial},
		{"another version", success(`{"apiVersion":"example.com/v3","kind":"Thing","metadata":{}}`),
			of + "returned invalid object at index 0: invalid groupVersion (expected example.com/v2, received example.com/v3)", invalid},
		{"another kind", success(`{"apiVersion":"example.com/v2","kind":"Thin","metadata":{}}`),
			of + "returned invalid object at index 0: invalid kind (expected Thing, received Thin)", invalid},
		{"another name", v2(`{"name":"b","uid":"u"}`), of + "returned invalid object: must have the same name: a != b", invalid},
		{"another UID", v2(`{"name":"a","uid":"v"}`), of + "returned invalid object: must have the same UID: u != v", invalid},
		{"bad labels", v2(`{"name":"a","uid":"u","labels":"none"}`), of + "returned invalid metadata: invalid metadata.labels of type string in converted object", invalid},
		{"a label that is no text", v2(`{"name":"a","uid":"u","labels":{"b":1}}`), of + "returned invalid metadata: metadata.labels[b] must be a string, but is int64 in converted object", invalid},
		{"a label that is none", v2(`{"name":"a","uid":"u","labels":{"b":"!"}}`), of + `returned invalid metadata: metadata.labels: Invalid value: "!"`, invalid},
		{"an annotation that is none", v2(`{"name":"a","uid":"u","annotations":{"!":"b"}}`), of + `returned invalid metadata: metadata.annotation: Invalid value: "!"`, invalid},
	} {
		reg := prometheus.NewRegistry()
		m := NewMetrics(reg)
		in := custom.New("example.com/v1", "Thing")
		in.Name, in.UID = "a", "u"
		out, err := Webhooks(q.from, m)(t.Context(), crd, []*custom.Object{in}, "v2")
		var status apierrors.APIStatus
		switch {
		case q.want == "" && (err != nil || out[0].Name != "a" || out[0].Labels["b"] != "c" || out[0].Version() != "v2"):
			t.Errorf("%s: got %v, %v", q.name, out, err)
		case q.want != "" && (err == nil || !strings.HasPrefix(err.Error(), q.want)):
			t.Errorf("%s: got %v, want %s", q.name, err, q.want)
		case errors.As(err, &status):
			t.Errorf("%s: to clients it is an answer of the API: %v", q.name, status.Status())
		}
		families, err := reg.Gather()
		if err != nil || len(families) != 3 {
			t.Fatalf("%s: got %v, %v, want three metrics", q.name, families, err)
		}
		result := "failure"
		if q.want == "" {
			result = "success"
		}
		for _, f := range families {
			if f.GetName() != "apiserver_conversion_webhook_request_total" {
				continue
			}
			labels := f.Metric[0].Label // in the order of their names
			if n := f.Metric[0].Counter.GetValue(); len(f.Metric) != 1 || n != 1 || labels[0].GetValue() != q.counts || labels[1].GetValue() != result {
				t.Errorf("%s: counted %v times as %v, want once as %s %s", q.name, n, labels, result, q.counts)
			}
		}
	}
}

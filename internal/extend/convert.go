package extend

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"maps"
	"time"

	"github.com/google/uuid"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apiextensionsv1beta1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1beta1"
	"k8s.io/apimachinery/pkg/api/validation"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	metav1validation "k8s.io/apimachinery/pkg/apis/meta/v1/validation"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/kemudi/kemudi/internal/custom"
	"github.com/kemudi/kemudi/internal/hook"
	"github.com/kemudi/kemudi/internal/obs/tracing"
)

const (
	// most is how many objects a webhook is sent at once.
	most = 500
	// patience is how long a webhook may take for them.
	patience = 30 * time.Second
)

// Poster sends webhooks a document and reads their answer.
type Poster interface {
	Post(ctx context.Context, cfg hook.Config, in, out any) error
}

// Webhooks converts objects by the webhooks of definitions. m counts that; nil: nobody does.
func Webhooks(p Poster, m *Metrics) Converter {
	return func(ctx context.Context, crd *apiextensionsv1.CustomResourceDefinition, objs []*custom.Object, to string) ([]*custom.Object, error) {
		out := make([]*custom.Object, 0, len(objs))
		for len(objs) > 0 {
			n, done := min(most, len(objs)), call{began: time.Now()}
			converted, wrong, err := convert(ctx, p, crd, objs[:n], crd.Spec.Group+"/"+to)
			done.wrong = wrong
			m.count(crd, objs[0], to, done)
			switch {
			case err != nil && ctx.Err() != nil:
				return nil, fmt.Errorf("conversion webhook for %s %w", kindName(objs[0].Type()), err)
			case err != nil:
				return nil, &failure{kindName(objs[0].Type()), err}
			}
			out, objs = append(out, converted...), objs[n:]
		}
		return out, nil
	}
}

// failure is a webhook's. What it wraps is not shown as an error: a status that the webhook was
// refused with, or has answered, is not the API's own.
type failure struct {
	kind string
	why  error
}

func (f *failure) Error() string { return "conversion webhook for " + f.kind + " " + f.why.Error() }

// kindName is how errors name a kind.
func kindName(apiVersion, kind string) string { return apiVersion + ", Kind=" + kind }

// convert is one call. Its errors go on after "conversion webhook for ..."; wrong is what they are about.
func convert(ctx context.Context, p Poster, crd *apiextensionsv1.CustomResourceDefinition, objs []*custom.Object, apiVersion string) (out []*custom.Object, wrong string, err error) {
	ctx, stop := context.WithTimeoutCause(ctx, patience, fmt.Errorf("no answer within %s", patience))
	defer stop()
	answers, wrong, err := ask(ctx, p, crd, objs, apiVersion)
	if err != nil {
		return nil, wrong, fmt.Errorf("failed: %w", err)
	}
	if len(answers) != len(objs) {
		return nil, partial, fmt.Errorf("returned %d objects, expected %d", len(answers), len(objs))
	}
	out = make([]*custom.Object, len(objs))
	for i := range answers {
		if out[i], err = take(i, objs[i], answers[i].Raw, apiVersion); err != nil {
			return nil, invalid, fmt.Errorf("returned invalid %w", err)
		}
	}
	return out, "", nil
}

// ask sends the objects in the first form that both sides know.
func ask(ctx context.Context, p Poster, crd *apiextensionsv1.CustomResourceDefinition, objs []*custom.Object, apiVersion string) (got []runtime.RawExtension, wrong string, err error) {
	w := crd.Spec.Conversion.Webhook
	request := apiextensionsv1.ConversionRequest{UID: types.UID(uuid.NewString()), DesiredAPIVersion: apiVersion}
	for _, o := range objs {
		doc, err := o.AppendStored(nil)
		if err != nil {
			return nil, notCalled, err
		}
		request.Objects = append(request.Objects, runtime.RawExtension{Raw: doc})
	}
	ctx, span := tracing.Within(ctx, "Call conversion webhook", tracing.Text("custom-resource-definition", crd.Name), tracing.Text("desired-api-version", apiVersion),
		tracing.Number("object-count", len(objs)), tracing.Text("UID", string(request.UID)))
	defer span.End()
	for _, version := range w.ConversionReviewVersions {
		switch version {
		case "v1":
			var answer apiextensionsv1.ConversionReview
			err := p.Post(ctx, whereabouts(w.ClientConfig), &apiextensionsv1.ConversionReview{TypeMeta: review("v1"), Request: &request}, &answer)
			if err != nil {
				return nil, notCalled, err
			}
			if got, want := kindName(answer.APIVersion, answer.Kind), kindName("apiextensions.k8s.io/v1", "ConversionReview"); got != want {
				return nil, malformed, fmt.Errorf("expected webhook response of %s, got %s", want, got)
			}
			if answer.Response != nil && answer.Response.UID != request.UID {
				return nil, malformed, fmt.Errorf("expected response.uid=%q, got %q", request.UID, answer.Response.UID)
			}
			got, err = converted(answer.Response)
			return got, malformed, err
		case "v1beta1":
			var answer apiextensionsv1beta1.ConversionReview
			old := apiextensionsv1beta1.ConversionRequest(request)
			err := p.Post(ctx, whereabouts(w.ClientConfig), &apiextensionsv1beta1.ConversionReview{TypeMeta: review("v1beta1"), Request: &old}, &answer)
			if err != nil {
				return nil, notCalled, err
			}
			got, err = converted((*apiextensionsv1.ConversionResponse)(answer.Response))
			return got, malformed, err
		}
	}
	return nil, notCalled, errors.New("no supported conversion review versions")
}

func review(version string) metav1.TypeMeta {
	return metav1.TypeMeta{APIVersion: "apiextensions.k8s.io/" + version, Kind: "ConversionReview"}
}

// converted are the objects of a response that says that it has them.
func converted(r *apiextensionsv1.ConversionResponse) ([]runtime.RawExtension, error) {
	switch {
	case r == nil:
		return nil, errors.New("no response provided")
	case r.Result.Status == metav1.StatusSuccess:
		return r.ConvertedObjects, nil
	case r.Result.Message != "":
		return nil, errors.New(r.Result.Message)
	}
	return nil, fmt.Errorf("response.result.status was '%s', not 'Success'", r.Result.Status)
}

// whereabouts is where the webhook is.
func whereabouts(c *apiextensionsv1.WebhookClientConfig) hook.Config {
	var out hook.Config
	if c == nil {
		return out
	}
	if len(bytes.TrimSpace(c.CABundle)) > 0 {
		out.CABundle = c.CABundle
	}
	if c.URL != nil {
		out.URL = *c.URL
	}
	if s := c.Service; s != nil {
		out.Service = &hook.Service{Namespace: s.Namespace, Name: s.Name}
		if s.Path != nil {
			out.Service.Path = *s.Path
		}
		if s.Port != nil {
			out.Service.Port = *s.Port
		}
	}
	return out
}

// take reads what the webhook has made of an object: its body, labels and annotations. The rest of the
// metadata stays, and who it is must. Its errors go on after "returned invalid".
func take(index int, in *custom.Object, doc []byte, apiVersion string) (*custom.Object, error) {
	var u unstructured.Unstructured
	if err := u.UnmarshalJSON(doc); err != nil {
		return nil, fmt.Errorf("object: %w", err)
	}
	gotVersion, gotKind := u.GetAPIVersion(), u.GetKind()
	_, kind := in.Type()
	for _, c := range []struct{ what, want, got string }{
		{"groupVersion", apiVersion, gotVersion},
		{"kind", kind, gotKind},
	} {
		if c.want != c.got {
			return nil, fmt.Errorf("object at index %d: invalid %s (expected %s, received %s)", index, c.what, c.want, c.got)
		}
	}
	for _, c := range []struct{ what, want, got string }{
		{"name", in.Name, u.GetName()}, {"namespace", in.Namespace, u.GetNamespace()}, {"UID", string(in.UID), string(u.GetUID())},
	} {
		if c.want != c.got {
			return nil, fmt.Errorf("object: must have the same %s: %v != %v", c.what, c.want, c.got)
		}
	}
	labels, annotations, err := notesOf(in, u.Object)
	if err != nil {
		return nil, fmt.Errorf("metadata: %w", err)
	}
	delete(u.Object, "metadata")
	out, err := custom.FromTree(u.Object)
	if err != nil {
		return nil, fmt.Errorf("object: %w", err)
	}
	out.ObjectMeta = *in.ObjectMeta.DeepCopy()
	out.Labels, out.Annotations = labels, annotations
	return out, nil
}

// notesOf are the labels and annotations that the webhook has given the object in. Those that it has
// not changed are not looked at.
func notesOf(in *custom.Object, answer map[string]any) (labels, annotations map[string]string, err error) {
	meta, there := answer["metadata"]
	if !there {
		return nil, nil, errors.New("missing metadata in converted object")
	}
	fields, ok := meta.(map[string]any)
	if !ok {
		return nil, nil, fmt.Errorf("invalid metadata of type %T in converted object", meta)
	}
	if labels, err = texts(fields, "labels"); err != nil {
		return nil, nil, err
	}
	if annotations, err = texts(fields, "annotations"); err != nil {
		return nil, nil, err
	}
	if !maps.Equal(labels, in.Labels) {
		if errs := metav1validation.ValidateLabels(labels, field.NewPath("metadata", "labels")); len(errs) > 0 {
			return nil, nil, errs.ToAggregate()
		}
	}
	if !maps.Equal(annotations, in.Annotations) {
		if errs := validation.ValidateAnnotations(annotations, field.NewPath("metadata", "annotation")); len(errs) > 0 { // as upstream calls it
			return nil, nil, errs.ToAggregate()
		}
	}
	return labels, annotations, nil
}

// texts is a field of metadata that maps names to texts.
func texts(meta map[string]any, name string) (map[string]string, error) {
	value := meta[name]
	if value == nil {
		return nil, nil
	}
	list, ok := value.(map[string]any)
	if !ok {
		return nil, fmt.Errorf("invalid metadata.%s of type %T in converted object", name, value)
	}
	out := make(map[string]string, len(list))
	for key, v := range list {
		if out[key], ok = v.(string); !ok {
			return nil, fmt.Errorf("metadata.%s[%s] must be a string, but is %T in converted object", name, key, v)
		}
	}
	return out, nil
}

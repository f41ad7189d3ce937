package extend

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/google/uuid"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apiextensionsv1beta1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1beta1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"

	"github.com/kemudi/kemudi/internal/custom"
	"github.com/kemudi/kemudi/internal/hook"
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

// Webhooks converts objects by the webhooks of definitions.
func Webhooks(p Poster) Converter {
	return func(ctx context.Context, crd *apiextensionsv1.CustomResourceDefinition, objs []*custom.Object, to string) ([]*custom.Object, error) {
		out := make([]*custom.Object, 0, len(objs))
		for len(objs) > 0 {
			n := min(most, len(objs))
			converted, err := convert(ctx, p, crd, objs[:n], crd.Spec.Group+"/"+to)
			if err != nil {
				return nil, fmt.Errorf("conversion webhook for %s %w", kindName(objs[0].Type()), err)
			}
			out, objs = append(out, converted...), objs[n:]
		}
		return out, nil
	}
}

// kindName is how errors name a kind.
func kindName(apiVersion, kind string) string { return apiVersion + ", Kind=" + kind }

// convert is one call. Its errors go on after "conversion webhook for ...".
func convert(ctx context.Context, p Poster, crd *apiextensionsv1.CustomResourceDefinition, objs []*custom.Object, apiVersion string) ([]*custom.Object, error) {
	ctx, stop := context.WithTimeoutCause(ctx, patience, fmt.Errorf("no answer within %s", patience))
	defer stop()
	answers, err := ask(ctx, p, crd.Spec.Conversion.Webhook, objs, apiVersion)
	if err != nil {
		return nil, fmt.Errorf("failed: %w", err)
	}
	if len(answers) != len(objs) {
		return nil, fmt.Errorf("returned %d objects, expected %d", len(answers), len(objs))
	}
	out := make([]*custom.Object, len(objs))
	for i := range answers {
		if out[i], err = take(objs[i], answers[i].Raw, apiVersion); err != nil {
			return nil, fmt.Errorf("returned invalid converted object at index %d: %w", i, err)
		}
	}
	return out, nil
}

// ask sends the objects in the first form that both sides know.
func ask(ctx context.Context, p Poster, w *apiextensionsv1.WebhookConversion, objs []*custom.Object, apiVersion string) ([]runtime.RawExtension, error) {
	request := apiextensionsv1.ConversionRequest{UID: types.UID(uuid.NewString()), DesiredAPIVersion: apiVersion}
	for _, o := range objs {
		doc, err := o.AppendStored(nil)
		if err != nil {
			return nil, err
		}
		request.Objects = append(request.Objects, runtime.RawExtension{Raw: doc})
	}
	for _, version := range w.ConversionReviewVersions {
		switch version {
		case "v1":
			var answer apiextensionsv1.ConversionReview
			err := p.Post(ctx, whereabouts(w.ClientConfig), &apiextensionsv1.ConversionReview{TypeMeta: review("v1"), Request: &request}, &answer)
			if err != nil {
				return nil, err
			}
			if got, want := kindName(answer.APIVersion, answer.Kind), kindName("apiextensions.k8s.io/v1", "ConversionReview"); got != want {
				return nil, fmt.Errorf("expected webhook response of %s, got %s", want, got)
			}
			if answer.Response != nil && answer.Response.UID != request.UID {
				return nil, fmt.Errorf("expected response.uid=%q, got %q", request.UID, answer.Response.UID)
			}
			return converted(answer.Response)
		case "v1beta1":
			var answer apiextensionsv1beta1.ConversionReview
			old := apiextensionsv1beta1.ConversionRequest(request)
			err := p.Post(ctx, whereabouts(w.ClientConfig), &apiextensionsv1beta1.ConversionReview{TypeMeta: review("v1beta1"), Request: &old}, &answer)
			if err != nil {
				return nil, err
			}
			return converted((*apiextensionsv1.ConversionResponse)(answer.Response))
		}
	}
	return nil, errors.New("no supported conversion review versions")
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
// metadata stays, and who it is must.
func take(in *custom.Object, doc []byte, apiVersion string) (*custom.Object, error) {
	var u unstructured.Unstructured
	if err := u.UnmarshalJSON(doc); err != nil {
		return nil, err
	}
	out, err := custom.FromTree(u.Object)
	if err != nil {
		return nil, err
	}
	gotVersion, gotKind := out.Type()
	_, kind := in.Type()
	for _, c := range []struct{ what, want, got string }{
		{"invalid groupVersion", apiVersion, gotVersion},
		{"invalid kind", kind, gotKind},
	} {
		if c.want != c.got {
			return nil, fmt.Errorf("%s (expected %s, received %s)", c.what, c.want, c.got)
		}
	}
	for _, c := range []struct{ what, want, got string }{
		{"name", in.Name, out.Name}, {"namespace", in.Namespace, out.Namespace}, {"UID", string(in.UID), string(out.UID)},
	} {
		if c.want != c.got {
			return nil, fmt.Errorf("must have the same %s: %v != %v", c.what, c.want, c.got)
		}
	}
	labels, annotations := out.Labels, out.Annotations
	out.ObjectMeta = *in.ObjectMeta.DeepCopy()
	out.Labels, out.Annotations = labels, annotations
	return out, nil
}

package tunnel

import (
	"fmt"
	"net/url"
	"reflect"
	"strconv"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// decodeQuery fills the fields of an options struct from the query parameters
// of the same JSON names. Unknown parameters are ignored, as upstream.
func decodeQuery(q url.Values, into any) error {
	v := reflect.ValueOf(into).Elem()
	for i := range v.NumField() {
		f := v.Type().Field(i)
		name, _, _ := strings.Cut(f.Tag.Get("json"), ",")
		values := q[name]
		if name == "" || len(values) == 0 {
			continue
		}
		if err := setField(v.Field(i), values); err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
	}
	return nil
}

// setField sets a field from the values of its parameter; only lists use more
// than the first.
func setField(f reflect.Value, values []string) error {
	if f.Kind() == reflect.Pointer {
		p := reflect.New(f.Type().Elem())
		if err := setField(p.Elem(), values); err != nil {
			return err
		}
		f.Set(p)
		return nil
	}
	if t, ok := f.Addr().Interface().(*metav1.Time); ok {
		parsed, err := time.Parse(time.RFC3339, values[0])
		*t = metav1.NewTime(parsed)
		return err
	}
	switch f.Kind() {
	case reflect.String:
		f.SetString(values[0])
	case reflect.Bool: // present means yes, unless it says no
		f.SetBool(values[0] != "0" && !strings.EqualFold(values[0], "false"))
	case reflect.Int32, reflect.Int64:
		n, err := strconv.ParseInt(values[0], 10, f.Type().Bits())
		if err != nil {
			return err
		}
		f.SetInt(n)
	case reflect.Slice:
		for _, value := range values {
			item := reflect.New(f.Type().Elem()).Elem()
			if err := setField(item, []string{value}); err != nil {
				return err
			}
			f.Set(reflect.Append(f, item))
		}
	default:
		return fmt.Errorf("a query cannot hold a %s", f.Type())
	}
	return nil
}

package gateway

import "reflect"

// differ adds to a change what is not as it was.
func differ[T any](was, now map[string]*T, to *map[string]*T) {
	for key := range was {
		if now[key] == nil {
			put(to, key, nil)
		}
	}
	for key, one := range now {
		if old := was[key]; old == nil || old != one && !reflect.DeepEqual(old, one) {
			put(to, key, one)
		}
	}
}

func put[T any](to *map[string]*T, key string, value *T) {
	if *to == nil {
		*to = map[string]*T{}
	}
	(*to)[key] = value
}

package openapi

import (
	"bytes"
	"encoding/json"
	"iter"
	"strings"
)

// Documents are long, and what becomes of their text is little: it is gone through where it stands, and not
// decoded. Text is what an encoder has written, so that it is JSON.

// members are the members of an object, in order. A name is without its quotes, but with its escapes.
func members(object []byte) iter.Seq2[[]byte, []byte] {
	return func(yield func(name, value []byte) bool) {
		for at := 1; ; {
			at = next(object, at)
			if at >= len(object) || object[at] != '"' {
				return
			}
			name := endOfString(object, at)
			from := next(object, name)
			to := endOfValue(object, from)
			if !yield(object[at+1:name-1], object[from:to]) {
				return
			}
			at = to
		}
	}
}

// elements are those of an array; of what is none, none.
func elements(array []byte) iter.Seq[[]byte] {
	return func(yield func(value []byte) bool) {
		if array[0] != '[' {
			return
		}
		for at := next(array, 1); at < len(array) && array[at] != ']'; at = next(array, at) {
			to := endOfValue(array, at)
			if !yield(array[at:to]) {
				return
			}
			at = to
		}
	}
}

// member is the value of a member of an object; nil: there is none.
func member(object []byte, name string) []byte {
	for n, value := range members(object) {
		if string(n) == name {
			return value
		}
	}
	return nil
}

// next skips what stands between values.
func next(text []byte, at int) int {
	for at < len(text) && strings.IndexByte(" \t\r\n,:", text[at]) >= 0 {
		at++
	}
	return at
}

// endOfString returns where a string ends that begins at a place.
func endOfString(text []byte, at int) int {
	for at++; ; at++ {
		i := bytes.IndexByte(text[at:], '"')
		if i < 0 {
			return len(text)
		}
		at += i
		escapes := 0
		for text[at-1-escapes] == '\\' {
			escapes++
		}
		if escapes%2 == 0 {
			return at + 1
		}
	}
}

// endOfValue returns where a value ends that begins at a place.
func endOfValue(text []byte, at int) int {
	for depth := 0; at < len(text); at++ {
		switch text[at] {
		case '"':
			at = endOfString(text, at) - 1
		case '{', '[':
			depth++
			continue
		case '}', ']':
			depth--
		default:
			if depth > 0 || strings.IndexByte(" \t\r\n,]}", text[min(at+1, len(text)-1)]) < 0 {
				continue
			}
		}
		if depth == 0 {
			return at + 1
		}
	}
	return len(text)
}

// appendText appends what a string says, of which the text is without its quotes.
func appendText(b, inner []byte) []byte {
	if bytes.IndexByte(inner, '\\') < 0 {
		return append(b, inner...)
	}
	quoted := append(append([]byte{'"'}, inner...), '"')
	var s string
	if json.Unmarshal(quoted, &s) != nil {
		return b // an encoder has written it
	}
	return append(b, s...)
}

// appendQuoted appends a text as a string.
func appendQuoted(b []byte, text string) []byte {
	quoted, _ := json.Marshal(text) // texts can always be encoded
	return append(b, quoted...)
}

package cri

import (
	"errors"
	"fmt"
	"io/fs"
	"strings"

	v1 "k8s.io/api/core/v1"
)

// fileKey reads a variable from a file that another container has written; ok
// is false if it is optional and not there.
func (in *ContainerInput) fileKey(ref *v1.FileKeySelector) (value string, ok bool, err error) {
	if in.ReadFile == nil {
		return "", false, nil
	}
	data, err := in.ReadFile(ref.VolumeName, ref.Path)
	if errors.Is(err, fs.ErrNotExist) && isTrue(ref.Optional) {
		return "", false, nil
	}
	if err != nil {
		return "", false, fmt.Errorf("couldn't read env file %q of volume %q: %w", ref.Path, ref.VolumeName, err)
	}
	vars, err := parseEnvFile(string(data))
	if err != nil {
		return "", false, fmt.Errorf("couldn't parse env file %q of volume %q: %w", ref.Path, ref.VolumeName, err)
	}
	if value, ok = vars[ref.Key]; !ok && !isTrue(ref.Optional) {
		return "", false, fmt.Errorf("environment variable key %q not found in file %q", ref.Key, ref.Path)
	}
	return value, ok, nil
}

// parseEnvFile reads the strict form of env files (KEP-3721), a part of what a
// shell reads: NAME='value' lines, where the value stands as it is and may go on
// over lines; a comment may follow it. NAME= 'x' gives NAME an empty value, as in
// a shell. Of several values of one name the first counts.
func parseEnvFile(text string) (map[string]string, error) {
	vars := map[string]string{}
	for number := 1; text != ""; {
		line, rest, _ := strings.Cut(text, "\n")
		at := number
		number, text = number+1, rest
		line = strings.TrimLeft(strings.TrimSuffix(line, "\r"), " \t")
		if line == "" || line[0] == '#' {
			continue
		}
		bad := func(what string) error {
			return fmt.Errorf("invalid environment variable format at line %d: %s", at, what)
		}
		name, value, ok := strings.Cut(line, "=")
		switch {
		case !ok:
			return nil, bad("missing '='")
		case name == "":
			return nil, bad("empty variable name")
		case strings.ContainsAny(name, " \t"):
			return nil, bad("whitespace before '=' is not allowed")
		}
		switch {
		case value != "" && strings.ContainsAny(value[:1], " \t"):
			value = ""
		case !strings.HasPrefix(value, "'"):
			return nil, bad("value must be enclosed in single quotes")
		default:
			quoted, after, ok := strings.Cut(value[1:], "'")
			for !ok {
				if text == "" {
					return nil, fmt.Errorf("invalid environment variable format starting at line %d: unclosed single quote", at)
				}
				line, text, _ = strings.Cut(text, "\n")
				number++
				var more string
				more, after, ok = strings.Cut(line, "'")
				quoted += "\n" + more
			}
			if after = strings.TrimLeft(after, " \t\r"); after != "" && after[0] != '#' {
				return nil, bad("unexpected content after closing quote")
			}
			value = quoted
		}
		if _, ok := vars[name]; !ok {
			vars[name] = value
		}
	}
	return vars, nil
}

package container

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"

	"github.com/klauspost/compress/zstd"

	"github.com/kemudi/kemudi/internal/wholefile"
)

// packed is where programs has what build/runtime/build.sh packed for the machine that kemudi
// is compiled for: NAME.zst for each stream of programs and their manifest. Before
// that it holds a README only.
const packed = "embedded/" + runtime.GOARCH + "/"

// ErrNotBuilt says that this kemudi was compiled without the programs of the
// embedded runtime.
var ErrNotBuilt = errors.New("the embedded container runtime is not part of this build: run build/runtime/build.sh and build again")

// program is one line of the manifest.
type program struct {
	sum    string // hexadecimal sha256 of the unpacked program
	size   int64
	name   string
	stream string // which stream it is in
	at     int64  // where that has it
}

func readManifest() ([]program, error) {
	data, err := programs.ReadFile(packed + "manifest")
	if errors.Is(err, fs.ErrNotExist) {
		return nil, ErrNotBuilt
	} else if err != nil {
		return nil, fmt.Errorf("read manifest of embedded programs: %w", err)
	}
	var list []program
	ends := map[string]int64{} // of what was named of each stream
	for line := range strings.Lines(string(data)) {
		f := strings.Fields(line)
		if len(f) != 4 {
			continue // the stamp
		}
		size, err := strconv.ParseInt(f[1], 10, 64)
		if err != nil {
			return nil, fmt.Errorf("read manifest of embedded programs: %w", err)
		}
		list = append(list, program{sum: f[0], size: size, name: f[2], stream: f[3], at: ends[f[3]]})
		ends[f[3]] += size
	}
	return list, nil
}

// Built reports whether this binary carries the embedded runtime.
func Built() bool {
	_, err := readManifest()
	return err == nil
}

// unpackPrograms makes dir hold the embedded programs, and returns how many it
// had to write. It keeps a program that is as it was when it was recorded with the
// right hash, so that a normal start reads one small file and nothing else.
func unpackPrograms(dir string) (written int, err error) {
	list, err := readManifest()
	if err != nil {
		return 0, err
	}
	return unpack(dir, list)
}

// UnpackPlugins makes DataDir/bin hold the CNI plugins alone, for a runtime that
// is not the embedded one and looks for them there.
func UnpackPlugins(o Options) error {
	o, err := o.withDefaults()
	if err != nil {
		return err
	}
	list, err := readManifest()
	if err != nil {
		return err
	}
	_, err = unpack(o.binDir(), slices.DeleteFunc(list, func(p program) bool { return p.name != "bridge" && p.name != "host-local" }))
	return err
}

func unpack(dir string, list []program) (written int, err error) {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return 0, fmt.Errorf("unpack programs: %w", err)
	}
	record := filepath.Join(dir, "manifest")
	have, err := os.ReadFile(record)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return 0, fmt.Errorf("unpack programs: %w", err)
	}
	var missing []program
	for _, p := range list {
		if line, err := recorded(dir, p); err != nil || !bytes.Contains(have, []byte(line)) {
			missing = append(missing, p)
		}
	}
	if err := writePrograms(dir, missing); err != nil {
		return 0, err
	}
	var want bytes.Buffer
	for _, p := range list {
		line, err := recorded(dir, p)
		if err != nil {
			return len(missing), fmt.Errorf("unpack programs: %w", err)
		}
		want.WriteString(line)
	}
	if len(missing) > 0 || !bytes.Equal(have, want.Bytes()) {
		if err := wholefile.Write(record, want.Bytes(), 0o644); err != nil {
			return len(missing), fmt.Errorf("unpack programs: %w", err)
		}
	}
	return len(missing), nil
}

// recorded is the line of the record about a program on disk. It changes with
// whatever is done to the file.
func recorded(dir string, p program) (string, error) {
	st, err := os.Stat(filepath.Join(dir, p.name))
	if err != nil {
		return "", err
	}
	return fmt.Sprintf("%s %d %v %d %s\n", p.sum, st.Size(), st.Mode(), st.ModTime().UnixNano(), p.name), nil
}

// writePrograms unpacks programs to a directory: each stream once, and then all of its programs
// at a time, since each waits for the disk.
func writePrograms(dir string, list []program) error {
	var wg sync.WaitGroup
	errs := make([]error, len(list))
	streams := map[string][]byte{}
	for i, p := range list {
		if _, ok := streams[p.stream]; !ok {
			data, err := unpackStream(p.stream)
			if err != nil {
				errs[i] = fmt.Errorf("unpack %s: %w", p.name, err)
				continue
			}
			streams[p.stream] = data
		}
		data := streams[p.stream]
		wg.Go(func() {
			data, err := p.content(data)
			if err == nil {
				err = wholefile.Write(filepath.Join(dir, p.name), data, 0o755)
			}
			if err != nil {
				errs[i] = fmt.Errorf("unpack %s to %s: %w", p.name, dir, err)
			}
		})
	}
	wg.Wait()
	return errors.Join(errs...)
}

// unpackStream returns the programs of a stream, one after the other.
func unpackStream(name string) ([]byte, error) {
	stream, err := programs.ReadFile(packed + name + ".zst")
	if err != nil {
		return nil, err
	}
	r, err := zstd.NewReader(nil, zstd.WithDecoderConcurrency(1))
	if err != nil {
		return nil, err
	}
	defer r.Close()
	return r.DecodeAll(stream, nil) // whose head says how large it is
}

// content is the program in the stream that holds it.
func (p program) content(stream []byte) ([]byte, error) {
	if int64(len(stream)) < p.at+p.size {
		return nil, errors.New("what is embedded is shorter than the manifest says")
	}
	data := stream[p.at : p.at+p.size]
	if sum := sha256.Sum256(data); hex.EncodeToString(sum[:]) != p.sum {
		return nil, errors.New("embedded program does not have the hash that the manifest gives")
	}
	return data, nil
}

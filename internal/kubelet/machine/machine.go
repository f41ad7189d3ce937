package machine

import (
	"bufio"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
)

// Info is what identifies the machine and its system.
type Info struct {
	MachineID, SystemUUID, BootID, Kernel, OSImage string
	Swap                                           int64 // bytes
	AppArmor                                       bool  // it can confine containers by that
}

// AddCapacity notes what the machine has; the file system is that of rootDir, which
// is made.
func AddCapacity(out v1.ResourceList, rootDir string) error {
	out[v1.ResourceCPU] = *resource.NewQuantity(int64(runtime.NumCPU()), resource.DecimalSI)
	memory, err := TotalMemory()
	if err != nil {
		return err
	}
	out[v1.ResourceMemory] = *resource.NewQuantity(memory, resource.BinarySI)
	if err := os.MkdirAll(rootDir, 0o750); err != nil {
		return fmt.Errorf("make root directory: %w", err)
	}
	fs, err := FileSystemOf(rootDir)
	if err != nil {
		return err
	}
	out[v1.ResourceEphemeralStorage] = *resource.NewQuantity(fs.Capacity, resource.BinarySI)
	for size, n := range hugePages() {
		out[v1.ResourceName(v1.ResourceHugePagesPrefix+size)] = *resource.NewQuantity(n, resource.BinarySI)
	}
	return nil
}

// TotalMemory is how much memory the machine has.
func TotalMemory() (int64, error) { return memory("MemTotal") }

// memory is what the kernel says of memory under a name, in bytes.
func memory(name string) (int64, error) {
	f, err := os.Open("/proc/meminfo")
	if err != nil {
		return 0, fmt.Errorf("read memory size: %w", err)
	}
	defer f.Close()
	lines := bufio.NewScanner(f)
	for lines.Scan() {
		words := strings.Fields(lines.Text())
		if len(words) >= 2 && words[0] == name+":" {
			kb, err := strconv.ParseInt(words[1], 10, 64)
			if err != nil {
				return 0, fmt.Errorf("read memory size: %w", err)
			}
			return kb << 10, nil
		}
	}
	if err := lines.Err(); err != nil {
		return 0, fmt.Errorf("read memory size: %w", err)
	}
	return 0, fmt.Errorf("read memory size: no %s in /proc/meminfo", name)
}

// hugePages are the bytes set aside for huge pages, by size ("2Mi").
func hugePages() map[string]int64 {
	out := map[string]int64{}
	dirs, err := filepath.Glob("/sys/kernel/mm/hugepages/hugepages-*kB")
	if err != nil {
		return out
	}
	for _, dir := range dirs {
		kb, err := strconv.ParseInt(strings.TrimSuffix(strings.TrimPrefix(filepath.Base(dir), "hugepages-"), "kB"), 10, 64)
		if err != nil {
			continue
		}
		n, err := strconv.ParseInt(readLine(filepath.Join(dir, "nr_hugepages")), 10, 64)
		if err != nil {
			continue
		}
		out[resource.NewQuantity(kb<<10, resource.BinarySI).String()] = n * kb << 10
	}
	return out
}

// Identify reads what there is; what is not is empty.
func Identify() Info {
	m := Info{
		MachineID:  readLine("/etc/machine-id"),
		SystemUUID: readLine("/sys/class/dmi/id/product_uuid"),
		BootID:     readLine("/proc/sys/kernel/random/boot_id"),
		OSImage:    "Linux",
		AppArmor:   readLine("/sys/module/apparmor/parameters/enabled") == "Y",
	}
	if swap, err := memory("SwapTotal"); err == nil {
		m.Swap = swap
	}
	if m.SystemUUID == "" {
		m.SystemUUID = m.MachineID
	}
	var u unix.Utsname
	if unix.Uname(&u) == nil {
		m.Kernel = unix.ByteSliceToString(u.Release[:])
	}
	if data, err := os.ReadFile("/etc/os-release"); err == nil {
		for line := range strings.Lines(string(data)) {
			if name, ok := strings.CutPrefix(strings.TrimSpace(line), "PRETTY_NAME="); ok {
				m.OSImage = strings.Trim(name, `"`)
			}
		}
	}
	return m
}

func readLine(path string) string {
	data, err := os.ReadFile(path)
	if err != nil {
		return ""
	}
	return strings.TrimSpace(string(data))
}

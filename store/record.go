package store

import (
	"encoding/binary"
	"errors"
	"hash/crc32"
	"strings"
)

// schemaVersion is that of the layout in the package's documentation. A file of
// another version is not used.
const schemaVersion = "1"

// bucket is one of the file's buckets.
type bucket uint8

const (
	objects bucket = iota
	owners
	cluster
	meta
)

var bucketNames = [...]string{"objects", "owners", "cluster", "meta"}

// Keys in meta whose values have no CRC.
const (
	schemaKey = "schema"
	digestKey = "digest"
)

// groupKey names records that are read together: a Service with its slices
// (the name ends in a slash), or a single record of the other buckets.
type groupKey struct {
	bucket bucket
	name   string
}

// split divides a key into its group's and what follows it.
func split(b bucket, key string) (groupKey, string) {
	if b == objects {
		at := strings.LastIndexByte(key, '/') + 1
		return groupKey{b, key[:at]}, key[at:]
	}
	return groupKey{b, key}, ""
}

func serviceGroup(namespace, name string) groupKey {
	return groupKey{objects, namespace + "/" + name + "/"}
}

// validName tells whether a name is one that Kubernetes allows to some kind that is stored: an RFC 1123 subdomain, of 253 bytes
// at most. Others could end keys, lines of a log and rows of a table.
func validName(name string) bool {
	for i := range len(name) {
		if c := name[i]; (c < 'a' || c > 'z') && (c < '0' || c > '9') && c != '-' && c != '.' {
			return false
		}
	}
	return name != "" && len(name) <= 253
}

const crcSize = 4

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// seal writes the CRC into the first bytes of a value whose payload follows them.
func seal(g groupKey, member string, value []byte) {
	binary.LittleEndian.PutUint32(value, checksum(g.bucket, g.name, member, value[crcSize:]))
}

// sealed returns a value with this payload.
func sealed(g groupKey, payload string) []byte {
	value := append(make([]byte, crcSize, crcSize+len(payload)), payload...)
	seal(g, "", value)
	return value
}

func checksum(b bucket, group, member string, payload []byte) uint32 {
	crc := crcOf(0, bucketNames[b])
	crc = crcOf(crc, "\x00")
	crc = crcOf(crc, group)
	crc = crcOf(crc, member)
	return crc32.Update(crc, castagnoli, payload)
}

// crcOf is crc32.Update for a string, without the allocation that a conversion needs.
func crcOf(crc uint32, s string) uint32 {
	crc = ^crc
	for i := range len(s) {
		crc = castagnoli[byte(crc)^s[i]] ^ crc>>8
	}
	return ^crc
}

var errChecksum = errors.New("checksum of a record does not match")

// unseal checks a value and returns its payload.
func unseal(g groupKey, member string, value []byte) ([]byte, error) {
	if len(value) < crcSize || binary.LittleEndian.Uint32(value) != checksum(g.bucket, g.name, member, value[crcSize:]) {
		return nil, errChecksum
	}
	return value[crcSize:], nil
}

// digest sums up all records of a file, so that a page which holds an older state is noticed.
type digest struct{ count, sum uint64 }

func (d *digest) add(value []byte) {
	if len(value) >= crcSize {
		d.count++
		d.sum += uint64(binary.LittleEndian.Uint32(value))
	}
}

func (d *digest) remove(value []byte) {
	if len(value) >= crcSize {
		d.count--
		d.sum -= uint64(binary.LittleEndian.Uint32(value))
	}
}

func (d *digest) bytes() []byte {
	return binary.LittleEndian.AppendUint64(binary.LittleEndian.AppendUint64(nil, d.count), d.sum)
}

func parseDigest(b []byte) (digest, bool) {
	if len(b) != 16 {
		return digest{}, false
	}
	return digest{binary.LittleEndian.Uint64(b), binary.LittleEndian.Uint64(b[8:])}, true
}

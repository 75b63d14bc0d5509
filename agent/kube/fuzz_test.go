package kube

import (
	"bytes"
	"encoding/binary"
	"io"
	"reflect"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/serializer/streaming"
	"k8s.io/apimachinery/pkg/watch"
	restwatch "k8s.io/client-go/rest/watch"
)

// watchFrame is one event of a watch on the wire.
func watchFrame(t testing.TB, s *apiServer, typ watch.EventType, obj runtime.Object) []byte {
	t.Helper()
	event := s.encode(&metav1.WatchEvent{Type: string(typ), Object: runtime.RawExtension{Raw: s.encode(obj)}})
	return append(binary.BigEndian.AppendUint32(nil, uint32(len(event))), event...)
}

// FuzzWatch: whatever a server sends in a watch is read without a panic and to its end, and what is handed on is an object of the
// kind that was asked for, with a name and a version.
func FuzzWatch(f *testing.F) {
	s := &apiServer{scheme: newScheme()}
	a := service("a", "10.43.0.1", nil)
	a.ResourceVersion = "5"
	added := watchFrame(f, s, watch.Added, a)
	bookmark := watchFrame(f, s, watch.Bookmark, &corev1.Service{ObjectMeta: metav1.ObjectMeta{ResourceVersion: "7"}})
	f.Add(append(bytes.Clone(added), bookmark...))
	f.Add(watchFrame(f, s, watch.Error, &metav1.Status{Code: 410, Reason: metav1.StatusReasonExpired}))
	f.Add(append([]byte{0xff, 0xff, 0xff, 0xff}, added...))
	f.Add(added[:len(added)/2])
	serializer := newSerializer()
	info, ok := runtime.SerializerInfoForMediaType(serializer.SupportedMediaTypes(), runtime.ContentTypeProtobuf)
	if !ok {
		f.Fatal("no protobuf")
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		body := &frameGuard{ReadCloser: io.NopCloser(bytes.NewReader(data))}
		frames := info.StreamSerializer.Framer.NewFrameReader(body)
		decoder := restwatch.NewDecoder(streaming.NewDecoder(frames, info.StreamSerializer.Serializer), serializer.DecoderToVersion(info.Serializer, nil))
		defer decoder.Close()
		w := watcher{watcherOptions: watcherOptions{want: reflect.TypeFor[*corev1.Service](), alive: func() {}}}
		end := ending{}
		for {
			typ, obj, err := decoder.Decode()
			if err != nil {
				return
			}
			event := watch.Event{Type: typ, Object: obj}
			w.look(&event, &end)
			if end.err != nil || event.Type == watch.Error {
				return
			}
			if svc, ok := event.Object.(*corev1.Service); !ok || svc.ResourceVersion == "" || event.Type != watch.Bookmark && (svc.Name == "" || svc.Namespace == "") {
				t.Fatalf("handed on: %v %+v", event.Type, event.Object)
			}
		}
	})
}

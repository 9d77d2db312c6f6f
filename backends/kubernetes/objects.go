package kubernetes

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/base32"
	"encoding/json"
	"errors"
	"fmt"
	"iter"
	"net"
	"net/url"
	"strconv"
	"strings"
	"time"

	coordination "k8s.io/api/coordination/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	meta "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"

	"github.com/holdfast-go/holdfast/store"
	"github.com/holdfast-go/holdfast/store/observed"
)

// What a Lease of ours bears. It has no renewTime and no leaseDurationSeconds: tools that go by these
// take it for no lease of an elector of client-go, and one that has them is none of ours.
const (
	domain = "holdfast-go.github.io/"
	kind   = domain + "kind"  // a label: the word before the key's slash
	keyOf  = domain + "key"   // of the object; the Lease's name is made of it
	value  = domain + "value" // of the object
	// after is the version that an update replaced. Without it an update with the value that stands would
	// change nothing, and leave the version as it is.
	after = domain + "after"
)

const (
	resource = "leases"
	page     = 500
)

var (
	_ observed.Objects  = (*objects)(nil)
	_ observed.Numbered = (*objects)(nil)
	_ observed.Limited  = (*objects)(nil)
)

var dialer = net.Dialer{Timeout: silence, KeepAlive: silence}

// objects is observed.Objects: each is a Lease. A version is the resourceVersion and the UID, without
// which an update makes a Lease that is not there.
type objects struct {
	client    *rest.RESTClient
	namespace string
	history   history
}

func (o *objects) Limits() store.Limits {
	return store.Limits{Name: "kubernetes", Batch: batch, MaxMetadata: maxMetadata, Endpoints: []string{o.client.Get().URL().Host}}
}

// Number reads the resourceVersion. Those of Leases are one sequence.
func (o *objects) Number(version string) (store.Token, error) {
	rv, _, _ := strings.Cut(version, "/")
	n, err := strconv.ParseUint(rv, 10, 63)
	if err != nil || n == 0 {
		return 0, fmt.Errorf("resourceVersion %.64q is no positive integer, so that it can't be a token: %w", rv, store.ErrUnsupported)
	}
	return store.Token(n), nil
}

func versionOf(l *coordination.Lease) string { return l.ResourceVersion + "/" + string(l.UID) }

// nameOf is the name of the Lease of a key: for people what the key says, and for no two keys the same.
func nameOf(key string) string {
	said := strings.TrimPrefix(key, "records/")
	if name, err := url.PathUnescape(strings.ReplaceAll(said, "_", "%")); err == nil {
		said = name
	}
	said = strings.Map(func(c rune) rune {
		if 'a' <= c && c <= 'z' || '0' <= c && c <= '9' {
			return c
		}
		return '-'
	}, strings.ToLower(said))
	sum := sha256.Sum256([]byte(key))
	return "hf-" + said[:min(len(said), 160)] + "-" + strings.ToLower(base32.StdEncoding.EncodeToString(sum[:]))[:20]
}

// lease is the Lease of an object.
func lease(key string, v []byte) *coordination.Lease {
	var said struct { // by the values of package observed, for people
		ID, By string
		At     int64
	}
	_ = json.Unmarshal(v, &said)
	of, _, _ := strings.Cut(key, "/")
	l := &coordination.Lease{ObjectMeta: meta.ObjectMeta{
		Name: nameOf(key), Labels: map[string]string{kind: of}, Annotations: map[string]string{keyOf: key, value: string(v)},
	}}
	if holder := cmp.Or(said.By, said.ID); holder != "" {
		l.Spec.HolderIdentity = &holder
	}
	if said.At != 0 {
		l.Spec.AcquireTime = &meta.MicroTime{Time: time.UnixMilli(said.At)}
	}
	return l
}

// object is what a Lease says under a key. One that was changed by others says nothing, and so holds
// its name; so does one that is being deleted, and is kept by a finalizer.
func object(key string, l *coordination.Lease) observed.Object {
	o := observed.Object{Key: key, Version: versionOf(l)}
	of := lease(key, []byte(l.Annotations[value]))
	if of.Name == l.Name && l.Annotations[keyOf] == key && l.Labels[kind] == of.Labels[kind] &&
		l.DeletionTimestamp == nil && l.Spec.RenewTime == nil && l.Spec.LeaseDurationSeconds == nil &&
		(l.Spec.HolderIdentity == nil || *l.Spec.HolderIdentity == "") == (of.Spec.HolderIdentity == nil) &&
		(of.Spec.HolderIdentity == nil || *l.Spec.HolderIdentity == *of.Spec.HolderIdentity) {
		o.Value = []byte(l.Annotations[value])
	}
	return o
}

// to makes a request for Leases, which is sent once: what client-go would send again after an answer
// that says nothing could meet what it had done itself.
func (o *objects) to(verb string) *rest.Request {
	return o.client.Verb(verb).Namespace(o.namespace).Resource(resource).MaxRetries(0)
}

func (o *objects) Get(ctx context.Context, key string) (observed.Object, bool, error) {
	m, err := o.begin(ctx)
	if err != nil {
		return observed.Object{}, false, err
	}
	var l coordination.Lease
	// Without a resourceVersion the answer is etcd's, and not of a cache.
	switch err := o.to("GET").Name(nameOf(key)).Do(ctx).Into(&l); {
	case missing(err):
		return observed.Object{}, false, nil
	case err != nil:
		return observed.Object{}, false, why(err)
	}
	if n, err := o.Number(l.ResourceVersion); err == nil {
		o.history.Heard(m.Age, at(n))
	}
	return object(key, &l), true, nil
}

func (o *objects) Put(ctx context.Context, key string, v []byte, ifVersion string) (version string, ok bool, err error) {
	m, err := o.begin(ctx)
	if err != nil {
		return "", false, err
	}
	l := lease(key, v)
	req := o.to("POST")
	if ifVersion != "" {
		rv, uid, _ := strings.Cut(ifVersion, "/")
		l.ResourceVersion, l.UID, l.Annotations[after] = rv, types.UID(uid), rv
		req = o.to("PUT").Name(l.Name)
	}
	switch err := req.Body(l).Do(ctx).Into(l); {
	case ifVersion == "" && apierrors.IsAlreadyExists(err), ifVersion != "" && (missing(err) || changed(err)):
		return "", false, nil
	case err != nil:
		return "", false, why(err)
	}
	n, err := o.Number(l.ResourceVersion)
	if err == nil {
		err = o.history.answered(m, n)
	}
	if err != nil {
		return "", false, err
	}
	o.history.wrote.Saw(int64(n))
	return versionOf(l), true, nil
}

func (o *objects) Delete(ctx context.Context, key, ifVersion string) (bool, error) {
	if _, err := o.begin(ctx); err != nil {
		return false, err
	}
	rv, id, _ := strings.Cut(ifVersion, "/")
	uid := types.UID(id)
	err := o.to("DELETE").Name(nameOf(key)).
		Body(&meta.DeleteOptions{Preconditions: &meta.Preconditions{UID: &uid, ResourceVersion: &rv}}).Do(ctx).Error()
	if missing(err) || changed(err) {
		return false, nil
	}
	return err == nil, why(err)
}

func (o *objects) List(ctx context.Context, prefix string) iter.Seq2[observed.Object, error] {
	return func(yield func(observed.Object, error) bool) {
		_, err := o.list(ctx, prefix, func(l *coordination.Lease) bool {
			key := l.Annotations[keyOf]
			return nameOf(key) != l.Name || !strings.HasPrefix(key, prefix) || yield(object(key, l), nil)
		})
		if err != nil {
			yield(observed.Object{}, err)
		}
	}
}

// list calls f for the Leases of the keys with a prefix, until that is false, and returns the version of
// the listing.
func (o *objects) list(ctx context.Context, prefix string, f func(*coordination.Lease) bool) (store.Token, error) {
	m, err := o.begin(ctx)
	if err != nil {
		return 0, err
	}
	q := meta.ListOptions{LabelSelector: kind, Limit: page}
	if of, _, ok := strings.Cut(prefix, "/"); ok {
		q.LabelSelector += "=" + of
	}
	for {
		all, n, err := o.page(ctx, q)
		if err == nil {
			err = o.history.answered(m, n)
		}
		if err != nil {
			return 0, err
		}
		for i := range all.Items {
			if !f(&all.Items[i]) {
				return n, nil
			}
		}
		if q.Continue = all.Continue; q.Continue == "" {
			return n, nil
		}
	}
}

// page is one page of a listing, and the version of that: not older than the request.
func (o *objects) page(ctx context.Context, q meta.ListOptions) (all coordination.LeaseList, n store.Token, err error) {
	req := o.to("GET").Param("labelSelector", q.LabelSelector).Param("limit", fmt.Sprint(q.Limit))
	if q.Continue != "" {
		req = req.Param("continue", q.Continue)
	}
	if err = why(req.Do(ctx).Into(&all)); err == nil {
		n, err = o.Number(all.ResourceVersion)
	}
	return all, n, err
}

// revision is the version of what stands now.
func (o *objects) revision(ctx context.Context) (store.Token, error) {
	_, n, err := o.page(ctx, meta.ListOptions{LabelSelector: kind, Limit: 1})
	return n, err
}

// missing and changed tell whether the answer is that there is no such Lease, or another one than that
// which was asked for. Other conflicts say nothing of it: those of a quota, or of a webhook.
func missing(err error) bool { return apierrors.IsNotFound(err) && ofLease(err) }
func changed(err error) bool { return apierrors.IsConflict(err) && ofLease(err) }

func ofLease(err error) bool {
	var s apierrors.APIStatus
	if !errors.As(err, &s) || s.Status().Details == nil {
		return false
	}
	of := s.Status().Details.Kind // a deletion's precondition says it by the object's kind
	return of == resource || of == "Lease"
}

// why says what an error of a request means. What is not store.ErrDenied says nothing.
func why(err error) error {
	switch {
	case err == nil:
		return nil
	case apierrors.IsForbidden(err), apierrors.IsUnauthorized(err), apierrors.IsNotFound(err), apierrors.IsMethodNotSupported(err):
		return fmt.Errorf("%w: %w", store.ErrDenied, err)
	}
	return err
}

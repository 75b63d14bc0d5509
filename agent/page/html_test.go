package page

import (
	"crypto/sha256"
	"encoding/base64"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"

	"golang.org/x/net/html"
)

// allowed are the elements of the page, with their attributes.
var allowed = map[string][]string{
	"html": {"lang"}, "head": nil, "meta": {"charset", "name", "content", "http-equiv"}, "title": nil, "style": nil, "body": nil, "main": nil,
	"header": nil, "h1": nil, "h2": {"id"}, "small": {"class"}, "span": {"class"}, "nav": nil, "a": {"href", "class"}, "b": nil, "div": {"class"},
	"ul": {"class"}, "li": {"class"}, "dl": nil, "dt": nil, "dd": nil, "br": nil, "footer": nil,
	"table": nil, "thead": nil, "tbody": nil, "tr": nil, "th": {"class"}, "td": {"class", "data-l"},
}

// checkPage holds that an answer is a page that nothing can get into, and returns its text, with one blank between words.
func checkPage(t *testing.T, w *httptest.ResponseRecorder) string {
	t.Helper()
	if w.Code != 200 || w.Header().Get("Content-Type") != "text/html; charset=utf-8" {
		t.Fatalf("%d, %v: %s", w.Code, w.Header(), w.Body)
	}
	body := w.Body.String()
	var open, text []string
	tokens := html.NewTokenizer(strings.NewReader(body))
	for {
		switch tokens.Next() {
		case html.ErrorToken:
			if len(open) > 0 {
				t.Errorf("%v are not closed", open)
			}
			return strings.Join(text, " ")
		case html.TextToken:
			if len(open) > 0 && open[len(open)-1] == "style" {
				checkPolicy(t, w, string(tokens.Raw()))
			} else {
				text = append(text, strings.Fields(string(tokens.Text()))...)
			}
		case html.StartTagToken:
			token := tokens.Token()
			attributes, known := allowed[token.Data]
			if !known {
				t.Errorf("an element <%s>", token.Data)
			}
			for _, a := range token.Attr {
				if !slices.Contains(attributes, a.Key) || a.Key == "href" && !strings.HasPrefix(a.Val, "/") && !strings.HasPrefix(a.Val, "#section") {
					t.Errorf("<%s> has %s=%q", token.Data, a.Key, a.Val)
				}
			}
			if token.Data != "meta" && token.Data != "br" {
				open = append(open, token.Data)
			}
		case html.EndTagToken:
			token := tokens.Token()
			if len(open) == 0 || open[len(open)-1] != token.Data {
				t.Fatalf("</%s> in %v", token.Data, open)
			}
			open = open[:len(open)-1]
		}
	}
}

// checkPolicy holds that the browser may use this style and nothing else.
func checkPolicy(t *testing.T, w *httptest.ResponseRecorder, style string) {
	t.Helper()
	sum := sha256.Sum256([]byte(style))
	policy := w.Header().Get("Content-Security-Policy")
	if !strings.HasPrefix(policy, "default-src 'none'; style-src 'sha256-"+base64.StdEncoding.EncodeToString(sum[:])+"';") || strings.Contains(policy, "unsafe") {
		t.Errorf("the policy is %s", policy)
	}
}

// rowsAndLinks are the Services of the table and where links lead.
func rowsAndLinks(t *testing.T, body string) (rows []string, links map[string]bool) {
	t.Helper()
	tree, err := html.Parse(strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	links = map[string]bool{}
	for n := range tree.Descendants() {
		switch {
		case n.Type == html.ElementNode && n.Data == "a":
			for _, a := range n.Attr {
				links[a.Val] = true
			}
		case n.Type == html.ElementNode && n.Data == "td" && n.PrevSibling == nil:
			rows = append(rows, n.FirstChild.Data)
		}
	}
	return rows, links
}

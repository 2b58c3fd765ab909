/* LinUCB's online loop in C, tuned: what the processor can do.

   Each step scores all candidates, takes the first best, reads its reward and learns it by
   Sherman-Morrison. Nothing is checked, and the small works' sizes are known to the compiler.
   Layouts, each the fastest of those tried :
   - short contexts: the candidates side by side, coefficient by coefficient, four a vector;
   - long ones (D): an arm's upper triangle in 4 x 4 tiles, block row by block row;
   - hybrid: all per-arm numbers side by side, the shared matrix in tiles. */

#include <math.h>
#include <stdint.h>
#include <string.h>

typedef int64_t i64;
typedef double v4 __attribute__((vector_size(32), aligned(8), may_alias));
typedef i64 l4 __attribute__((vector_size(32), aligned(8), may_alias));
#define V(p) (*(v4 *)(p))
#define FAST static inline __attribute__((always_inline))
#define LINE __attribute__((aligned(64)))
#define UNROLL _Pragma("GCC unroll 8")
#define UP4(n) (((n) + 3) / 4 * 4)

FAST double sum4(v4 a) { return (a[0] + a[1]) + (a[2] + a[3]); }

FAST double dot(i64 n, const double *a, const double *b) {
    v4 s = V(a) * V(b);
    for (i64 j = 4; j < n; j += 4) s += V(a + j) * V(b + j);
    return sum4(s);
}

/* The first of the highest scores mean + alpha sqrt(quad); spoils what is past n. */
FAST i64 first_best(i64 n, double alpha, double *mean, const double *quad) {
    double score[UP4(n)] LINE;
    for (i64 c = n; c < UP4(n); c++) mean[c] = -INFINITY;
    for (i64 c = 0; c < UP4(n); c++) score[c] = mean[c] + alpha * sqrt(quad[c]);
    v4 top = V(score);
    l4 at = {0, 1, 2, 3}, here = at;
    for (i64 c = 4; c < n; c += 4) {
        l4 more = V(score + c) > top;
        here += 4;
        top = (v4)((more & (l4)V(score + c)) | (~more & (l4)top));
        at = (more & here) | (~more & at);
    }
    i64 b = 0;
    for (i64 i = 1; i < 4; i++)
        if (top[i] > top[b] || (top[i] == top[b] && at[i] < at[b])) b = i;
    return at[b];
}

/* -- models side by side: the upper triangle of A^-1 row by row, then theta; stride L ---------- */

FAST void score(i64 d, i64 L, const double *a, const double *x, double *quad, double *mean) {
    v4 q[L / 4], m[L / 4];
    UNROLL for (i64 v = 0; v < L / 4; v++) q[v] = m[v] = (v4){0};
    UNROLL for (i64 i = 0; i < d; i++)
        UNROLL for (i64 j = i; j < d; j++, a += L)
            UNROLL for (i64 v = 0; v < L / 4; v++)
                q[v] += (i == j ? 1 : 2) * x[i] * x[j] * V(a + 4 * v);
    UNROLL for (i64 i = 0; i < d; i++, a += L)
        UNROLL for (i64 v = 0; v < L / 4; v++) m[v] += x[i] * V(a + 4 * v);
    UNROLL for (i64 v = 0; v < L / 4; v++) V(quad + 4 * v) = q[v], V(mean + 4 * v) = m[v];
}

FAST void times(i64 d, i64 L, const double *a, const double *x, double *w) { /* w = A^-1 x */
    UNROLL for (i64 i = 0; i < d; i++) w[i] = 0;
    UNROLL for (i64 i = 0; i < d; i++) {
        w[i] += *a * x[i], a += L;
        UNROLL for (i64 j = i + 1; j < d; j++, a += L) w[i] += *a * x[j], w[j] += *a * x[i];
    }
}

FAST void learn(i64 d, i64 L, double *a, double g, double error, const double *w) {
    UNROLL for (i64 i = 0; i < d; i++)
        UNROLL for (i64 j = i; j < d; j++, a += L) *a -= g * w[i] * w[j];
    UNROLL for (i64 i = 0; i < d; i++, a += L) *a += g * error * w[i];
}

/* Candidates of event t: pools[pool_of[t]]. With logged, only a choice of that place counts. */
FAST void side_by_side(i64 n, i64 d, i64 width, double alpha, const double *X, const i64 *pool_of,
                       const i64 *pools, const i64 *logged, const double *rewards, double *models,
                       i64 *chosen) {
    i64 size = d * (d + 3) / 2, L = UP4(width), now = -1;
    double side[size * L] LINE, mean[L] LINE, quad[L] LINE, w[d];
    memset(side, 0, sizeof side);
    for (i64 t = 0; t < n; t++) {
        if (pool_of[t] != now) { /* put the old pool's models back, take the new one's */
            for (i64 c = 0; c < width && now >= 0; c++)
                for (i64 k = 0; k < size; k++)
                    models[pools[now * width + c] * size + k] = side[k * L + c];
            now = pool_of[t];
            for (i64 c = 0; c < width; c++)
                for (i64 k = 0; k < size; k++)
                    side[k * L + c] = models[pools[now * width + c] * size + k];
        }
        score(d, L, side, X + t * d, quad, mean);
        i64 best = chosen[t] = first_best(width, alpha, mean, quad);
        if (logged && best != logged[t]) continue;
        double r = logged ? rewards[t] : rewards[t * width + best];
        times(d, L, side + best, X + t * d, w);
        learn(d, L, side + best, 1 / (1 + quad[best]), r - mean[best], w);
    }
}

void disjoint(i64 n, i64 d, i64 width, double alpha, const double *X, const i64 *pool_of,
              const i64 *pools, const i64 *logged, const double *rewards, double *models,
              i64 *chosen) {
#define CALL(d, width) \
    side_by_side(n, d, width, alpha, X, pool_of, pools, logged, rewards, models, chosen)
    if (d == 5 && width == 10) CALL(5, 10);
    else if (d == 6 && width == 20) CALL(6, 20);
    else CALL(d, width);
}

/* -- tiles: the upper triangle of A^-1 (s x s, s a multiple of 4), whole on the diagonal ------- */

FAST double tile_quad(i64 s, const double *A, const double *x) {
    v4 q = {0};
    for (i64 i = 0; i < s; i += 4, A += 16) {
        v4 y = 0.5 * V(x + i), a = y * V(A), b = y * V(A + 4), c = y * V(A + 8), e = y * V(A + 12);
        for (i64 j = i + 4; j < s; j += 4) {
            A += 16, y = V(x + j);
            a += y * V(A), b += y * V(A + 4), c += y * V(A + 8), e += y * V(A + 12);
        }
        q += (x[i] * a + x[i + 1] * b) + (x[i + 2] * c + x[i + 3] * e);
    }
    return 2 * sum4(q);
}

FAST void tile_times(i64 s, const double *A, const double *x, double *w) {
    memset(w, 0, s * sizeof *w);
    for (i64 i = 0; i < s; i += 4, A += 16) {
        v4 y = V(x + i), a = y * V(A), b = y * V(A + 4), c = y * V(A + 8), e = y * V(A + 12);
        for (i64 j = i + 4; j < s; j += 4) {
            A += 16, y = V(x + j);
            a += y * V(A), b += y * V(A + 4), c += y * V(A + 8), e += y * V(A + 12);
            V(w + j) += (x[i] * V(A) + x[i + 1] * V(A + 4)) +
                        (x[i + 2] * V(A + 8) + x[i + 3] * V(A + 12));
        }
        V(w + i) += (v4){sum4(a), sum4(b), sum4(c), sum4(e)};
    }
}

/* A^-1 -= g w w', and theta, right after it, += gain w */
FAST void tile_learn(i64 s, double *A, double g, double gain, const double *w) {
    for (i64 i = 0; i < s; i += 4)
        for (i64 j = i; j < s; j += 4, A += 16)
            UNROLL for (i64 r = 0; r < 4; r++) V(A + 4 * r) -= g * w[i + r] * V(w + j);
    for (i64 j = 0; j < s; j += 4) V(A + j) += gain * V(w + j);
}

/* Every other step starts from the last arm, whose model is still near. d: a multiple of 4. */
void disjoint_long(i64 n, i64 d, i64 K, double alpha, const double *X, const double *rewards,
                   double *models, i64 *chosen) {
    i64 tri = d * (d + 4) / 2, size = tri + d;
    double mean[UP4(K)], quad[UP4(K)], w[d];
    memset(quad, 0, sizeof quad);
    for (i64 t = 0; t < n; t++) {
        const double *x = X + t * d;
        for (i64 k = 0; k < K; k++) {
            i64 c = t % 2 ? K - 1 - k : k;
            quad[c] = tile_quad(d, models + c * size, x);
            mean[c] = dot(d, models + c * size + tri, x);
        }
        i64 best = chosen[t] = first_best(K, alpha, mean, quad);
        double *A = models + best * size, g = 1 / (1 + quad[best]);
        tile_times(d, A, x, w);
        tile_learn(d, A, g, g * (rewards[t * K + best] - mean[best]), w);
    }
}

/* -- hybrid, d = m = 6: own (27, K), C (36, 6, K), Y (6, K); shared: tiles of A0^-1, then beta - */

void hybrid(i64 n, double alpha, const double *X, const double *Y, const double *rewards,
            double *own, double *C, double *shared, i64 *chosen) {
    enum { d = 6, k = 36, L = 20, N = L / 4 };
    double *beta = shared + k * (k + 4) / 2;
    double U[k * L] LINE, quad[L] LINE, mean[L] LINE, both[L] LINE, all[L] LINE, w[d], u[k], h[k];
    for (i64 t = 0; t < n; t++) {
        const double *x = X + t * d, *A = shared;
        v4 q[N] = {0}, m[N] = {0};
        score(d, L, own, x, quad, mean);
        for (i64 j = 0; j < k; j++) /* u = kron(y, x) - C'x */
            UNROLL for (i64 v = 0; v < N; v++) {
                v4 z = x[j % d] * V(Y + j / d * L + 4 * v);
                UNROLL for (i64 i = 0; i < d; i++) z -= x[i] * V(C + (j * d + i) * L + 4 * v);
                V(U + j * L + 4 * v) = z;
                m[v] += beta[j] * z;
            }
        for (i64 i = 0; i < k; A += 4 * (k - i), i += 4) /* u'A0^-1 u, two rows at a time */
            UNROLL for (i64 r = 0; r < 4; r += 2) {
                v4 f[N] = {0}, g[N] = {0};
                const double *a = A + 4 * r;
                for (i64 j = i; j < k; j += 4, a += 16) {
                    UNROLL for (i64 o = 0; o < 4; o++) UNROLL for (i64 v = 0; v < N; v++) {
                        v4 y = V(U + (j + o) * L + 4 * v);
                        f[v] += a[o] * y, g[v] += a[4 + o] * y;
                    }
                    UNROLL for (i64 v = 0; v < N && j == i; v++) f[v] *= 0.5, g[v] *= 0.5;
                }
                const double *row = U + (i + r) * L;
                UNROLL for (i64 v = 0; v < N; v++)
                    q[v] += f[v] * V(row + 4 * v) + g[v] * V(row + L + 4 * v);
            }
        UNROLL for (i64 v = 0; v < N; v++) {
            V(both + 4 * v) = V(mean + 4 * v) + m[v];
            V(all + 4 * v) = V(quad + 4 * v) + 2 * q[v];
        }
        i64 best = chosen[t] = first_best(L, alpha, both, all);
        double g = 1 / (1 + quad[best]), r = rewards[t * L + best], *c = C + best;
        times(d, L, own + best, x, w);
        learn(d, L, own + best, g, r - mean[best], w);
        for (i64 j = 0; j < k; j++) {
            u[j] = U[j * L + best];
            UNROLL for (i64 i = 0; i < d; i++, c += L) *c += g * w[i] * u[j];
        }
        double step = g / (1 + g * (all[best] - quad[best]));
        tile_times(k, shared, u, h);
        tile_learn(k, shared, step, step * (r - both[best]), h);
    }
}

/* -- updates alone: an arm's numbers together -------------------------------------------------- */

/* Learn into one model of stride 1; leaves w = A^-1 x and the error of before, returns g. */
FAST double observe(i64 d, double *a, const double *x, double *error, double *w) {
    double q = 1;
    times(d, 1, a, x, w);
    UNROLL for (i64 i = 0; i < d; i++) q += x[i] * w[i], *error -= x[i] * a[d * (d + 1) / 2 + i];
    learn(d, 1, a, 1 / q, *error, w);
    return 1 / q;
}

void update_short(i64 n, const i64 *arms, const double *X, const double *rewards, double *models) {
    enum { d = 5 };
    for (i64 t = 0; t < n; t++) {
        double w[d], error = rewards[t];
        observe(d, models + arms[t] * (d * (d + 3) / 2), X + t * d, &error, w);
    }
}

void update_long(i64 n, i64 d, const i64 *arms, const double *X, const double *rewards,
                 double *models) {
    i64 tri = d * (d + 4) / 2;
    double w[d];
    for (i64 t = 0; t < n; t++) {
        double *A = models + arms[t] * (tri + d);
        tile_times(d, A, X + t * d, w);
        double g = 1 / (1 + dot(d, X + t * d, w));
        tile_learn(d, A, g, g * (rewards[t] - dot(d, X + t * d, A + tri)), w);
    }
}

/* An arm: C (6, 36), 27 numbers of its own model, 5 to fill the cache line. Y: (K, 6). */
void update_hybrid(i64 n, const i64 *arms, const double *X, const double *Y, const double *rewards,
                   double *models, double *shared) {
    enum { d = 6, k = 36, size = d * k + 32 };
    double w[d], u[k] LINE, h[k] LINE, *beta = shared + k * (k + 4) / 2;
    for (i64 t = 0; t < n; t++) {
        const double *x = X + t * d, *y = Y + arms[t] * d;
        double *C = models + arms[t] * size, error = rewards[t];
        double g = observe(d, C + d * k, x, &error, w);
        for (i64 i = 0; i < d; i++) for (i64 j = 0; j < d; j++) u[i * d + j] = y[i] * x[j];
        for (i64 j = 0; j < k; j += 4) {
            v4 z = V(u + j);
            UNROLL for (i64 i = 0; i < d; i++) z -= x[i] * V(C + i * k + j);
            UNROLL for (i64 i = 0; i < d; i++) V(C + i * k + j) += g * w[i] * z;
            V(u + j) = z;
        }
        tile_times(k, shared, u, h);
        double step = g / (1 + g * dot(k, u, h));
        tile_learn(k, shared, step, step * (error - dot(k, u, beta)), h);
    }
}

/* The sum of n numbers, n a multiple of 32: eight vectors under way, so memory sets the pace. */
double total(i64 n, const double *a) {
    v4 s[8] = {0};
    for (i64 i = 0; i < n; i += 32) UNROLL for (i64 v = 0; v < 8; v++) s[v] += V(a + i + 4 * v);
    return sum4(((s[0] + s[1]) + (s[2] + s[3])) + ((s[4] + s[5]) + (s[6] + s[7])));
}

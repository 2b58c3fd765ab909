/* LinUCB's online loop as one would first write it in C.

   Sizes are known only when it runs, as in any library; matrices are whole and lie arm by arm. Each step scores the candidates,
   takes the first best, reads its reward and learns it by Sherman-Morrison. tuned.c goes on from
   here with sizes compiled in. */

#include <math.h>
#include <stdint.h>
#include <string.h>

typedef int64_t i64;

/* w = A x for a symmetric matrix: a sum of rows. */
static void times(i64 d, const double *A, const double *x, double *w) {
    for (i64 j = 0; j < d; j++) w[j] = 0;
    for (i64 i = 0; i < d; i++)
        for (i64 j = 0; j < d; j++) w[j] += x[i] * A[i * d + j];
}

static double dot(i64 d, const double *a, const double *b) {
    double sum = 0;
    for (i64 j = 0; j < d; j++) sum += a[j] * b[j];
    return sum;
}

/* x' A x, row by row: for short x faster than a product that is stored */
static double form(i64 d, const double *A, const double *x) {
    double sum = 0;
    for (i64 i = 0; i < d; i++) sum += x[i] * dot(d, A + i * d, x);
    return sum;
}

/* A -= g w w' */
static void lessen(i64 d, double *A, double g, const double *w) {
    for (i64 i = 0; i < d; i++)
        for (i64 j = 0; j < d; j++) A[i * d + j] -= g * w[i] * w[j];
}

static void learn(i64 d, double *A, double *theta, const double *x, double r, double *w) {
    times(d, A, x, w);
    double g = 1 / (1 + dot(d, x, w)), gain = g * (r - dot(d, x, theta));
    lessen(d, A, g, w);
    for (i64 j = 0; j < d; j++) theta[j] += gain * w[j];
}

/* Candidates of event t: pools[pool_of[t]]. With logged, only a choice of that place counts. */
void plain_disjoint(i64 n, i64 d, i64 width, double alpha, const double *X, const i64 *pool_of,
                    const i64 *pools, const i64 *logged, const double *rewards, double *A,
                    double *theta, i64 *chosen) {
    double w[d];
    for (i64 t = 0; t < n; t++) {
        const double *x = X + t * d;
        const i64 *pool = pools + pool_of[t] * width;
        i64 best = 0;
        double top = -INFINITY;
        for (i64 c = 0; c < width; c++) {
            double q = form(d, A + pool[c] * d * d, x);
            double score = dot(d, theta + pool[c] * d, x) + alpha * sqrt(q);
            if (score > top) top = score, best = c;
        }
        chosen[t] = best;
        if (logged && best != logged[t]) continue;
        double r = logged ? rewards[t] : rewards[t * width + best];
        learn(d, A + pool[best] * d * d, theta + pool[best] * d, x, r, w);
    }
}

void plain_update(i64 n, i64 d, const i64 *arms, const double *X, const double *rewards, double *A,
                  double *theta) {
    double w[d];
    for (i64 t = 0; t < n; t++)
        learn(d, A + arms[t] * d * d, theta + arms[t] * d, X + t * d, rewards[t], w);
}

/* -- hybrid: an arm's A^-1 (d, d), t (d) and C (d, k); shared A0^-1 (k, k) and beta (k) --------- */

static void residual(i64 d, i64 k, const double *x, const double *y, const double *C, double *u) {
    for (i64 h = 0; h < k / d; h++)
        for (i64 i = 0; i < d; i++) u[h * d + i] = y[h] * x[i];
    for (i64 i = 0; i < d; i++)
        for (i64 j = 0; j < k; j++) u[j] -= x[i] * C[i * k + j];
}

static void learn_hybrid(i64 d, i64 k, const double *x, const double *y, double r, double *A,
                         double *t, double *C, double *A0, double *beta, double *w, double *u,
                         double *h) {
    residual(d, k, x, y, C, u);
    times(d, A, x, w);
    double g = 1 / (1 + dot(d, x, w)), error = r - dot(d, x, t);
    lessen(d, A, g, w);
    for (i64 i = 0; i < d; i++) {
        t[i] += g * error * w[i];
        for (i64 j = 0; j < k; j++) C[i * k + j] += g * w[i] * u[j];
    }
    times(k, A0, u, h);
    double step = g / (1 + g * dot(k, u, h)), gain = step * (error - dot(k, u, beta));
    lessen(k, A0, step, h);
    for (i64 j = 0; j < k; j++) beta[j] += gain * h[j];
}

void plain_hybrid(i64 n, i64 d, i64 m, i64 K, double alpha, const double *X, const double *Y,
                  const double *rewards, double *A, double *T, double *C, double *A0, double *beta,
                  i64 *chosen) {
    i64 k = d * m;
    double w[d], u[k], h[k];
    for (i64 t = 0; t < n; t++) {
        const double *x = X + t * d;
        i64 best = 0;
        double top = -INFINITY;
        for (i64 a = 0; a < K; a++) {
            residual(d, k, x, Y + a * m, C + a * d * k, u);
            times(k, A0, u, h); /* long enough to be vectorised as a sum of rows */
            double q = form(d, A + a * d * d, x) + dot(k, u, h);
            double score = dot(d, x, T + a * d) + dot(k, u, beta) + alpha * sqrt(q);
            if (score > top) top = score, best = a;
        }
        chosen[t] = best;
        learn_hybrid(d, k, x, Y + best * m, rewards[t * K + best], A + best * d * d, T + best * d,
                     C + best * d * k, A0, beta, w, u, h);
    }
}

void plain_update_hybrid(i64 n, i64 d, i64 m, const i64 *arms, const double *X, const double *Y,
                         const double *rewards, double *A, double *T, double *C, double *A0,
                         double *beta) {
    i64 k = d * m;
    double w[d], u[k], h[k];
    for (i64 t = 0; t < n; t++) {
        i64 a = arms[t];
        learn_hybrid(d, k, X + t * d, Y + a * m, rewards[t], A + a * d * d, T + a * d,
                     C + a * d * k, A0, beta, w, u, h);
    }
}

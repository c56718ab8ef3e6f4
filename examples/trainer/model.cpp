#include "model.hpp"

#include <cmath>

#include "../common/random.hpp"

namespace trainer {

Rows initial_rows(const ModelOptions& options, std::uint64_t table, const Keys& keys) {
    Rows rows;
    rows.reserve(keys.size() * options.dim());
    for (const std::uint64_t key : keys) {
        examples::Random random(examples::mix64(options.seed ^ examples::mix64(key * 2 + table)));
        rows.push_back(0.0F);
        for (std::uint32_t f = 0; f < options.factors; ++f) {
            rows.push_back(static_cast<float>(2.0 * random.unit() - 1.0) * options.init_scale);
        }
    }
    return rows;
}

float predict(float mean, const float* user, const float* item, std::uint32_t factors) {
    float rating = mean + user[0] + item[0];
    for (std::uint32_t f = 1; f <= factors; ++f) {
        rating += user[f] * item[f];
    }
    return rating;
}

Batch::Batch(const Ratings& ratings, const ModelOptions& options) : ratings_(ratings), options_(options) {
    user.slot_of.assign(ratings.users.size(), 0);
    user.seen_in.assign(ratings.users.size(), 0);
    item.slot_of.assign(ratings.items.size(), 0);
    item.seen_in.assign(ratings.items.size(), 0);
}

std::uint32_t Batch::take(Side& side, std::uint32_t position, std::uint64_t key) const {
    if (side.seen_in[position] != number_) {
        side.seen_in[position] = number_;
        side.slot_of[position] = static_cast<std::uint32_t>(side.keys.size());
        side.keys.push_back(key);
    }
    return side.slot_of[position];
}

void Batch::select(const std::vector<std::uint32_t>& order, std::size_t first, std::size_t count) {
    ++number_;
    members_.clear();
    user.keys.clear();
    item.keys.clear();
    for (std::size_t i = 0; i < count; ++i) {
        const Rating& rating = ratings_.train[order[first + i]];
        members_.push_back(Member{take(user, rating.user, ratings_.users[rating.user]),
                                  take(item, rating.item, ratings_.items[rating.item]), rating.stars});
    }
    user.rows.resize(user.keys.size() * options_.dim());
    item.rows.resize(item.keys.size() * options_.dim());
}

void Batch::compute_gradients(float scale) {
    user.gradients.assign(user.rows.size(), 0.0F);
    item.gradients.assign(item.rows.size(), 0.0F);
    for (const Member& member : members_) {
        const float* u = user.rows.data() + std::size_t{member.user_slot} * options_.dim();
        const float* v = item.rows.data() + std::size_t{member.item_slot} * options_.dim();
        float* gu = user.gradients.data() + std::size_t{member.user_slot} * options_.dim();
        float* gv = item.gradients.data() + std::size_t{member.item_slot} * options_.dim();
        const float error = predict(ratings_.mean, u, v, options_.factors) - member.stars;
        gu[0] += scale * (error + options_.bias_regularisation * u[0]);
        gv[0] += scale * (error + options_.bias_regularisation * v[0]);
        for (std::uint32_t f = 1; f <= options_.factors; ++f) {
            gu[f] += scale * (error * v[f] + options_.regularisation * u[f]);
            gv[f] += scale * (error * u[f] + options_.regularisation * v[f]);
        }
    }
}

double rmse(const std::vector<Rating>& ratings, float mean, const Rows& users, const Rows& items,
            std::uint32_t factors) {
    double sum = 0.0;
    const std::size_t dim = std::size_t{factors} + 1;
    for (const Rating& rating : ratings) {
        const float* u = users.data() + rating.user * dim;
        const float* v = items.data() + rating.item * dim;
        const double error = static_cast<double>(predict(mean, u, v, factors)) - static_cast<double>(rating.stars);
        sum += error * error;
    }
    return std::sqrt(sum / static_cast<double>(ratings.size()));
}

}  // namespace trainer

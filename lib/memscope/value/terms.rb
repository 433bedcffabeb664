# frozen_string_literal: true

module Memscope
  # Words for people: of series and rows, and of Ruby's internals that a census or a heap graph cannot avoid; and whose
  # names are memscope's own.
  # @api private
  module Terms
    WORDS = Words.beside(__FILE__)

    # Below memscope's directory, wherever it is installed in the process that was read.
    OWN_LINE = %r{/lib/memscope(?:/.*)?\.rb:\d+\z}

    # @return [String] "Ruby heap", "RSS", "minor GCs"
    def self.series(id)
      { ruby_internal: "Ruby internals", jit: "JIT code", c_library: "C library" }.fetch(id) do
        id.name.tr("_", " ").sub(/\A[rpu]ss\z/, &:upcase).sub("ruby", "Ruby").sub("gcs", "GCs")
      end
    end

    # @return [String] "imemo_ment (method entries)"; other names as they are
    def self.explained(name) = meaning(:internal, name)&.then { |meaning| "#{name} (#{meaning})" } || name

    # @return [String, nil] its meaning, or nil for any other name
    def self.root(name) = meaning(:root, name)

    # @return [Boolean] whether it is memscope's
    def self.own?(name) = name.b.match?(/\A(?:#<Class:)?Memscope\b/)

    # @return [Boolean] whether the path leads to an object of memscope
    def self.own_path?(steps)
      own?(steps[root(steps.first[:name]) && steps.size > 1 ? 1 : 0][:name]) ||
        steps.any? { |step| step[:thread_name]&.start_with?("memscope") || step[:made_at]&.b&.match?(OWN_LINE) }
    end

    def self.meaning(kind, name) = (WORDS["#{kind}.#{name}"] if WORDS.key?("#{kind}.#{name}"))
    private_class_method :meaning
  end
end

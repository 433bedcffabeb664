# frozen_string_literal: true

module Memscope
  # Words for people: of series and rows, and of Ruby's internals that a census or a heap graph cannot avoid; and whose
  # names are memscope's own.
  # @api private
  module Terms
    # What internal objects are, by the names that they have in JSON.
    MEANINGS = {
      "imemo_ast" => "syntax trees", "imemo_callcache" => "method caches", "imemo_callinfo" => "call sites",
      "imemo_constcache" => "constant caches", "imemo_cref" => "scopes of code",
      "imemo_env" => "variables of blocks", "imemo_fields" => "instance variables",
      "imemo_ifunc" => "blocks written in C", "imemo_iseq" => "compiled code", "imemo_ment" => "method entries",
      "imemo_svar" => "$~ and the like", "imemo_tmpbuf" => "temporary buffers",
      "T_ARRAY" => "Ruby's own Arrays", "T_DATA" => "objects of C code", "T_HASH" => "Ruby's own Hashes",
      "T_ICLASS" => "included modules", "T_OBJECT" => "Ruby's own objects", "T_STRING" => "Ruby's own Strings"
    }.freeze

    # What is reachable from a category of roots, by its name in JSON.
    ROOTS = { "global_list" => "variables of C code", "global_tbl" => "global variables",
              "machine_context" => "the stack of the thread that reads",
              "vm" => "Ruby itself: threads, loaded files, Symbols, caches" }.freeze

    # Below memscope's directory, wherever it is installed in the process that was read.
    OWN_LINE = %r{/lib/memscope(?:/.*)?\.rb:\d+\z}
    private_constant :OWN_LINE

    class << self
      # @param id [Symbol] of a history's series or of a ledger's row
      # @return [String] "Ruby heap", "RSS", "minor GCs"
      def series(id)
        { ruby_internal: "Ruby internals", jit: "JIT code", c_library: "C library" }.fetch(id) do
          id.name.tr("_", " ").sub(/\A[rpu]ss\z/, &:upcase).sub("ruby", "Ruby").sub("gcs", "GCs")
        end
      end

      # @param name [String] of a class or an internal object
      # @return [String] "imemo_ment (method entries)"; other names as they are
      def explained(name) = MEANINGS.key?(name) ? "#{name} (#{MEANINGS[name]})" : name

      # @param name [String] of a class or module, with any bytes
      # @return [Boolean] whether it is memscope's
      def own?(name) = name.b.match?(/\A(?:#<Class:)?Memscope\b/)

      # @param steps [Array<Hash>] of the body of a HeapGraph::Path
      # @return [Boolean] whether what the path leads to is memscope's
      def own_path?(steps)
        own?(steps[ROOTS.key?(steps.first[:name]) && steps.size > 1 ? 1 : 0][:name]) ||
          steps.any? { |step| step[:thread_name]&.start_with?("memscope") || step[:made_at]&.b&.match?(OWN_LINE) }
      end
    end
  end
end
